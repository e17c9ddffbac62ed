package smtp

import (
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pgrelay/relay"
)

// arrived publishes a mail and reads what came.
func arrived(t *testing.T, d doc) *mail.Message {
	t.Helper()
	p, s := start(t)
	requireDelivered(t, p, mailTo(d, ada))
	mails := s.MailsTo(ada)
	require.Len(t, mails, 1)
	require.Equal(t, "calendar@example.org", mails[0].From)
	return read(t, mails[0].Data)
}

// leaf is a part without parts.
type leaf struct {
	media  string
	params map[string]string
	file   string
	body   string
}

// leaves takes a mail apart, in order, with the media of what holds parts in between.
func leaves(t *testing.T, header func(string) string, body io.Reader) []leaf {
	t.Helper()
	media, params, err := mime.ParseMediaType(header("Content-Type"))
	require.NoError(t, err)
	if strings.HasPrefix(media, "multipart/") {
		list := []leaf{{media: media}}
		for r := multipart.NewReader(body, params["boundary"]); ; {
			part, err := r.NextRawPart()
			if err == io.EOF {
				return list
			}
			require.NoError(t, err)
			list = append(list, leaves(t, part.Header.Get, part)...)
		}
	}
	switch header("Content-Transfer-Encoding") {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	_, disposition, _ := mime.ParseMediaType(header("Content-Disposition"))
	delete(params, "boundary")
	return []leaf{{media: media, params: params, file: disposition["filename"], body: strings.TrimSuffix(string(text), "\r\n")}}
}

func parts(t *testing.T, m *mail.Message) []leaf {
	t.Helper()
	return leaves(t, m.Header.Get, m.Body)
}

var utf8Charset = map[string]string{"charset": "utf-8"}

func TestMailHasTheHeadersThatMailNeeds(t *testing.T) {
	t.Parallel()
	m := arrived(t, with(doc{"cc": []string{"Carol, Inc. <carol@example.com>", `Ü\mit   <umit@example.com>`}, "headers": doc{"X-Room": "7  ä", "reply-to": "Büro <" + bob + ">"}}))
	require.Equal(t, "\"Calendar\" <calendar@example.org>", m.Header.Get("From"))
	require.Equal(t, `"Ada" <ada@example.com>, <bob@example.com>`, m.Header.Get("To"), "everybody sees everybody")
	cc, err := m.Header.AddressList("Cc")
	require.NoError(t, err)
	require.Equal(t, []*mail.Address{{Name: "Carol, Inc.", Address: "carol@example.com"}, {Name: `Ü\mit`, Address: "umit@example.com"}}, cc)
	require.Equal(t, "Booked "+secret, m.Header.Get("Subject"))
	require.Equal(t, "1.0", m.Header.Get("MIME-Version"))
	require.Equal(t, "auto-generated", m.Header.Get("Auto-Submitted"))
	require.Equal(t, "7 ä", decoded(t, m.Header.Get("X-Room")))
	reply, err := m.Header.AddressList("Reply-To")
	require.NoError(t, err)
	require.Equal(t, []*mail.Address{{Name: "Büro", Address: bob}}, reply)
	date, err := m.Header.Date()
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), date, time.Minute+ample)
	require.Equal(t, []leaf{{"text/plain", utf8Charset, "", "See you. " + secret}}, parts(t, m))
}

func decoded(t *testing.T, value string) string {
	t.Helper()
	text, err := new(mime.WordDecoder).DecodeHeader(value)
	require.NoError(t, err)
	return text
}

func TestProducerMaySayWhatAutoSubmittedIs(t *testing.T) {
	t.Parallel()
	m := arrived(t, with(doc{"headers": doc{"auto-submitted": "no"}}))
	require.Equal(t, []string{"no"}, m.Header["Auto-Submitted"])
}

func TestMessageIDIsTheSameForOneEventAndRecipientAlone(t *testing.T) {
	t.Parallel()
	from := mail.Address{Address: "calendar@example.org"}
	id := func(event, recipient string) string {
		return messageID(from, &relay.Message{EventID: event, Recipient: recipient})
	}
	require.Equal(t, id("e1", ada), id("e1", ada))
	require.NotEqual(t, id("e1", ada), id("e2", ada))
	require.NotEqual(t, id("e1", ada), id("e1", bob))
	require.NotEqual(t, id("e1", "1@x"), id("e11", "@x"))
	require.Regexp(t, `^[0-9a-f]{32}@example\.org$`, id("e1", ada))

	p, s := start(t)
	requireDelivered(t, p, mailTo(with(nil), ada))
	requireDelivered(t, p, mailTo(with(nil), ada))
	mails := s.MailsTo(ada)
	require.Equal(t, "<"+id("event-1", ada)+">", read(t, mails[0].Data).Header.Get("Message-Id"))
	require.Equal(t, read(t, mails[0].Data).Header.Get("Message-Id"), read(t, mails[1].Data).Header.Get("Message-Id"))
}

func TestTextsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"lone dots":        "first\n.\n..\n.last",
		"only a dot":       ".",
		"dots and CR LF":   "a\r\n.\r\nMAIL FROM:<x@example.com>\r\n",
		"long line":        strings.Repeat("word ", 1000) + strings.Repeat("x", 5000),
		"long UTF-8":       strings.Repeat("漢字", 2000),
		"blanks at ends":   "a \nb\t\n \nc",
		"looks like MIME":  "--boundary\nContent-Type: text/html\n\n=3D =?utf-8?q?x?=",
		"From at a line":   "a\nFrom here on\n>From there",
		"empty lines":      "\n\na\n\n\n",
		"bare CR is a end": "a\rb",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n").Replace(text)
			got := parts(t, arrived(t, with(doc{"text": text, "html": text})))
			require.Equal(t, "multipart/alternative", got[0].media)
			require.Equal(t, []string{"text/plain", "text/html"}, []string{got[1].media, got[2].media}, "the best comes last")
			require.Equal(t, strings.TrimSuffix(want, "\r\n"), got[1].body)
			require.Equal(t, strings.TrimSuffix(want, "\r\n"), got[2].body)
		})
	}
}

func TestSubjectsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{
		"Ihre Buchung für Zürich – bestätigt ✓", strings.Repeat("漢字かな交じり文", 30), "\U0001F680", "a: b; c, \"d\" <e@f>", strings.Repeat("long words ", 70),
		"to: x", "trailing ä ", "=3D",
	} {
		m := arrived(t, with(doc{"subject": subject}))
		require.Equal(t, strings.TrimSpace(subject), decoded(t, m.Header.Get("Subject")))
		require.Len(t, m.Header, 9)
	}
}

// TestNothingInADocumentAddsAHeaderOrARecipient writes mails of any texts that Check takes.
func TestNothingInADocumentAddsAHeaderOrARecipient(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,120}`), rapid.SampledFrom([]string{"\r\nBcc: x@y", "\n.\n", "\r\n.\r\nRCPT TO:<x@y>\r\n"}))
		d := doc{
			"to": "A" + text.Draw(rt, "name") + " <" + ada + ">", "subject": "s" + text.Draw(rt, "subject"), "text": text.Draw(rt, "text") + "t",
			"headers": doc{"X-A": text.Draw(rt, "header")},
		}
		m := mailTo(d, ada)
		if p.Check(m) != nil {
			return
		}
		before := len(s.Mails())
		result, _ := p.Publish(t.Context(), []*relay.Message{m})
		require.Equal(rt, relay.OutcomeDelivered, result[0].Outcome)
		mails := s.Mails()
		require.Len(rt, mails, before+1)
		require.Equal(rt, ada, mails[before].To)
		got := read(t, mails[before].Data)
		for name := range got.Header {
			require.Contains(rt, []string{
				"From", "To", "Subject", "Date", "Message-Id", "Mime-Version", "Auto-Submitted", "Content-Type", "Content-Transfer-Encoding", "X-A",
			}, name)
		}
		to, err := got.Header.AddressList("To")
		require.NoError(rt, err)
		require.Len(rt, to, 1)
	})
}
