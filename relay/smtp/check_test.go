package smtp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/smtptest"
	"pgrelay/relay"
)

// meeting is a good `calendar` with some keys set otherwise.
func meeting(changes doc) doc {
	d := doc{"method": "request", "uid": "booking-4711@example.com", "start": "2026-03-29T09:00:00+02:00", "end": "2026-03-29T10:00:00+02:00"}
	for key, value := range changes {
		if d[key] = value; value == nil {
			delete(d, key)
		}
	}
	return d
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	calendar := func(changes doc) string { return with(doc{"calendar": meeting(changes)}).String() }
	headers := func(h doc) string { return with(doc{"headers": h}).String() }
	for name, c := range map[string]struct{ body, reason, names string }{
		"no JSON":                     {secret, "malformed_mail", "no JSON object"},
		"half a JSON":                 {`{"to": "` + secret, "malformed_mail", "no JSON object"},
		"a list":                      {`["` + secret + `"]`, "malformed_mail", "no JSON object"},
		"null":                        {"null", "malformed_mail", "no JSON object"},
		"nothing":                     {"", "malformed_mail", "no JSON object"},
		"two documents":               {"{} {}", "malformed_mail", "no JSON object"},
		"no UTF-8":                    {with(nil).String()[:10] + "\xff", "invalid_utf8", "UTF-8"},
		"unknown key":                 {with(doc{"bcc": secret}).String(), "malformed_mail", `"bcc"`},
		"key in other letters":        {with(doc{"Subject": secret}).String(), "malformed_mail", `"Subject"`},
		"unknown key of calendar":     {calendar(doc{"rrule": secret}), "malformed_mail", `calendar has a key that a mail doesn't have: "rrule"`},
		"no recipient":                {with(doc{"to": nil}).String(), "no_recipient", "to or cc"},
		"empty lists":                 {with(doc{"to": []string{}, "cc": []string{}}).String(), "no_recipient", "to or cc"},
		"recipient of a number":       {with(doc{"to": 5}).String(), "malformed_mail", "to is neither"},
		"recipient of an object":      {with(doc{"to": []doc{{"email": secret}}}).String(), "malformed_mail", "to is neither"},
		"no address":                  {with(doc{"to": []string{ada, secret}}).String(), "invalid_address", "address 2 of to"},
		"two addresses in one":        {with(doc{"cc": ada + ", " + bob}).String(), "invalid_address", "address 1 of cc"},
		"two addresses, one in <>":    {with(doc{"cc": ada + ", Bob <" + bob + ">"}).String(), "invalid_address", "address 1 of cc"},
		"empty address":               {with(doc{"to": []string{""}}).String(), "invalid_address", "address 1 of to"},
		"address with CR LF":          {with(doc{"to": "ada@example.com>\r\nRCPT TO:<" + bob}).String(), "invalid_address", "address 1 of to"},
		"address with LF":             {with(doc{"to": "ada@example.com\nBcc: " + bob}).String(), "invalid_address", "address 1 of to"},
		"address with NUL":            {with(doc{"to": "ada\x00@example.com"}).String(), "invalid_address", "address 1 of to"},
		"name with LF":                {with(doc{"to": "Ada\n Bcc: x <ada@example.com>"}).String(), "invalid_address", "address 1 of to"},
		"name with a folded line":     {with(doc{"to": "Ada\r\n <ada@example.com>"}).String(), "invalid_address", "address 1 of to"},
		"name with an encoded LF":     {with(doc{"to": "=?utf-8?q?Ada=0ABcc?= <ada@example.com>"}).String(), "invalid_address", "address 1 of to"},
		"local part too long":         {with(doc{"to": strings.Repeat("a", 65) + "@example.com"}).String(), "invalid_address", "address 1 of to"},
		"address too long":            {with(doc{"to": "a@" + strings.Repeat("a.", 130) + "com"}).String(), "invalid_address", "address 1 of to"},
		"name too long":               {with(doc{"to": strings.Repeat("a", 251) + " <" + ada + ">"}).String(), "invalid_address", "address 1 of to"},
		"no subject":                  {with(doc{"subject": nil}).String(), "malformed_mail", "subject"},
		"blank subject":               {with(doc{"subject": " "}).String(), "malformed_mail", "subject"},
		"subject of a number":         {with(doc{"subject": 7}).String(), "malformed_mail", "subject is no text"},
		"subject with CR LF":          {with(doc{"subject": secret + "\r\nBcc: x"}).String(), "invalid_characters", "subject"},
		"subject with LF":             {with(doc{"subject": secret + "\nBcc: x"}).String(), "invalid_characters", "subject"},
		"subject with CR":             {with(doc{"subject": secret + "\rx"}).String(), "invalid_characters", "subject"},
		"subject with NUL":            {with(doc{"subject": "\x00"}).String(), "invalid_characters", "subject"},
		"endless subject":             {with(doc{"subject": strings.Repeat("a", 901)}).String(), "malformed_mail", "subject"},
		"no content":                  {with(doc{"text": nil}).String(), "malformed_mail", "neither text nor html"},
		"text of an object":           {with(doc{"text": doc{}}).String(), "malformed_mail", "text is no text"},
		"text with NUL":               {with(doc{"html": "\x00"}).String(), "invalid_characters", "NUL"},
		"headers of a list":           {with(doc{"headers": []string{"X-A: b"}}).String(), "malformed_mail", "headers is no object"},
		"header of a number":          {headers(doc{"X-A": 1}), "malformed_mail", "headers.X-A is no text"},
		"header with CR LF":           {headers(doc{"X-A": secret + "\r\nBcc: x"}), "invalid_characters", "headers.X-A"},
		"header with NUL":             {headers(doc{"X-A": "\x00"}), "invalid_characters", "headers.X-A"},
		"header with an endless word": {headers(doc{"X-A": strings.Repeat("a", 900)}), "invalid_header", "headers.X-A"},
		"header twice":                {headers(doc{"X-A": "a", "x-a": "b"}), "invalid_header", "given twice"},
		"header without name":         {headers(doc{"": "a"}), "invalid_header", "name"},
		"header's name with colon":    {headers(doc{"X-A: b\r\nBcc": "a"}), "invalid_header", "name"},
		"header's name with blank":    {headers(doc{"X A": "a"}), "invalid_header", "name"},
		"header's name beyond ASCII":  {headers(doc{"X-Ä": "a"}), "invalid_header", "name"},
		"header's name too long":      {headers(doc{strings.Repeat("a", 71): "a"}), "invalid_header", "name"},
		"reply address":               {headers(doc{"Reply-To": secret}), "invalid_address", "headers.Reply-To"},
		"calendar of a text":          {with(doc{"calendar": secret}).String(), "malformed_mail", "calendar is no object"},
		"no method":                   {calendar(doc{"method": nil}), "invalid_calendar", "calendar.method"},
		"other method":                {calendar(doc{"method": "REQUEST"}), "invalid_calendar", "calendar.method"},
		"reschedule without sequence": {calendar(doc{"method": "reschedule"}), "invalid_calendar", "calendar.sequence"},
		"cancel with sequence 0":      {calendar(doc{"method": "cancel", "sequence": 0}), "invalid_calendar", "calendar.sequence"},
		"sequence below 0":            {calendar(doc{"sequence": -1}), "malformed_mail", "calendar.sequence"},
		"sequence with a point":       {calendar(doc{"sequence": 1.5}), "malformed_mail", "calendar.sequence"},
		"sequence as text":            {calendar(doc{"sequence": "1"}), "malformed_mail", "calendar.sequence"},
		"no uid":                      {calendar(doc{"uid": nil}), "invalid_calendar", "calendar.uid"},
		"uid with LF":                 {calendar(doc{"uid": "a\nMETHOD:CANCEL"}), "invalid_characters", "calendar.uid"},
		"no start":                    {calendar(doc{"start": nil}), "malformed_mail", "calendar.start is missing"},
		"start without zone":          {calendar(doc{"start": "2026-03-29T09:00:00"}), "malformed_mail", "calendar.start"},
		"end before start":            {calendar(doc{"end": "2026-03-29T06:59:00Z"}), "invalid_calendar", "calendar.end"},
		"end at start":                {calendar(doc{"end": "2026-03-29T07:00:00Z"}), "invalid_calendar", "calendar.end"},
		"location with LF":            {calendar(doc{"location": "a\nb"}), "invalid_characters", "calendar.location"},
		"description with bell":       {calendar(doc{"description": "\a"}), "invalid_characters", "calendar.description"},
		"url of a script":             {calendar(doc{"url": "javascript:alert(1)"}), "invalid_calendar", "calendar.url"},
		"two organizers":              {calendar(doc{"organizer": []string{ada, bob}}), "invalid_calendar", "calendar.organizer"},
		"attendee":                    {calendar(doc{"attendees": []string{secret}}), "invalid_address", "address 1 of calendar.attendees"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := unopened(t, &smtptest.Server{}, destination(smtptest.Start(t, smtptest.Options{})))
			m := &relay.Message{Body: c.body, Recipient: ada}
			var r *relay.Rejection
			require.ErrorAs(t, p.Check(m), &r)
			require.Equal(t, c.reason, r.Reason, r.Detail)
			require.Contains(t, r.Detail, c.names)
			require.NotContains(t, r.Detail, secret)
			require.NotContains(t, r.Detail, "\n")
			require.Empty(t, p.Recipients(m))
		})
	}
}

func TestCheckRefusesHeadersThatAreNotTheProducers(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	for _, name := range []string{
		"From", "to", "CC", "Bcc", "Sender", "Subject", "Date", "Message-ID", "message-id", "MIME-Version", "Content-Type",
		"Content-Transfer-Encoding", "Content-X", "Resent-To", "Received", "Return-Path", "DKIM-Signature",
	} {
		var r *relay.Rejection
		require.ErrorAs(t, p.Check(mailTo(with(doc{"headers": doc{name: "x"}}), ada)), &r, name)
		require.Equal(t, "invalid_header", r.Reason)
		require.Contains(t, r.Detail, "headers."+name)
	}
}

func TestCheckTakes(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	for name, d := range map[string]doc{
		"one recipient as text":  with(doc{"to": ada}),
		"cc alone":               with(doc{"to": nil, "cc": ada}),
		"nulls":                  with(doc{"cc": nil, "html": nil, "headers": nil, "calendar": nil}),
		"html alone":             with(doc{"text": nil, "html": "<p>Hi</p>"}),
		"headers":                with(doc{"headers": doc{"X-Room": "7", "Reply-To": "Ünsal <" + bob + ">", "X!#$%&'*+_`{|}~": "", "References": "<a@b>"}}),
		"plus and quotes":        with(doc{"to": []string{"ada+x@example.com", `"ada lovelace"@example.com`, "o'brien@example.com"}}),
		"an address as a domain": with(doc{"to": "ada@[192.0.2.1]"}),
		"an invitation":          with(doc{"calendar": meeting(doc{"sequence": 0, "url": "https://example.com/b/1", "organizer": bob, "attendees": ada})}),
		"a cancellation":         with(doc{"calendar": meeting(doc{"method": "cancel", "sequence": 3})}),
	} {
		body := d.String()
		if name == "nulls" {
			body = strings.TrimSuffix(body, "}") + `,"cc":null,"html":null,"headers":null,"calendar":null}`
		}
		require.NoError(t, p.Check(&relay.Message{Body: body}), name)
	}
}

func TestRecipientsComeOnceInTheirOrder(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	m := mailTo(with(doc{
		"to": []string{"Ada <ada@Example.COM>", bob, "ada@example.com", `"x y"@example.com`},
		"cc": []string{"carol@example.com", "BOB@EXAMPLE.COM", "Bob <bob@EXAMPLE.com>"},
	}), "")
	require.Equal(t, []string{ada, bob, `"x y"@example.com`, "carol@example.com", "BOB@example.com"}, p.Recipients(m))
	for _, r := range p.Recipients(m) {
		m.Recipient = r
		requireDelivered(t, p, m)
	}
}

func TestOtherLettersThanASCIIsNeedSMTPUTF8(t *testing.T) {
	t.Parallel()
	d := with(doc{"to": []string{"jürgen@example.com", ada}})
	plain, _ := start(t)
	var r *relay.Rejection
	require.ErrorAs(t, plain.Check(mailTo(d, ada)), &r)
	require.Equal(t, "smtputf8_missing", r.Reason)
	result, fault := publish(t, plain, mailTo(d, "jürgen@example.com"))
	require.Nil(t, fault)
	require.Equal(t, relay.OutcomeRejected, result.Outcome)

	p, s := start(t, "SMTPUTF8", "8BITMIME")
	require.NoError(t, p.Check(mailTo(d, ada)))
	require.Equal(t, []string{"jürgen@example.com", ada}, p.Recipients(mailTo(d, "")))
	requireDelivered(t, p, mailTo(d, "jürgen@example.com"))
	m := s.MailsTo("jürgen@example.com")
	require.Len(t, m, 1)
	require.Contains(t, string(m[0].Data), "jürgen@example.com")
	require.Contains(t, commands(s), "MAIL FROM:<calendar@example.org> BODY=8BITMIME SMTPUTF8")
}

func TestReplyToOfOtherLettersNeedsSMTPUTF8AsWell(t *testing.T) {
	t.Parallel()
	d := with(doc{"headers": doc{"Reply-To": "Jürgen <jürgen@example.com>"}})
	plain, s := start(t)
	var r *relay.Rejection
	require.ErrorAs(t, plain.Check(mailTo(d, ada)), &r)
	require.Equal(t, "smtputf8_missing", r.Reason)
	result, fault := publish(t, plain, mailTo(d, ada))
	require.Nil(t, fault)
	require.Equal(t, relay.OutcomeRejected, result.Outcome)
	require.Empty(t, s.Mails())

	p, s := start(t, "SMTPUTF8")
	requireDelivered(t, p, mailTo(d, ada))
	require.Contains(t, commands(s), "MAIL FROM:<calendar@example.org> SMTPUTF8")
}

func TestCheckBeforeOpenBlamesNoServer(t *testing.T) {
	t.Parallel()
	s := smtptest.Start(t, smtptest.Options{})
	require.NoError(t, unopened(t, s, destination(s)).Check(mailTo(with(doc{"to": "jürgen@example.com"}), "")))
}

// commands are what the server was told, as lines.
func commands(s *smtptest.Server) []string {
	var list []string
	for _, c := range s.Commands() {
		list = append(list, strings.TrimSpace(c.Verb+" "+c.Argument))
	}
	return list
}
