package smtp

import (
	"strings"
	"testing"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/stretchr/testify/require"
)

// The entries are written with go-ical and read here with golang-ical, which knows nothing of it.

// invited publishes a mail with an invitation and reads it from where calendars look: beside the text and in the file.
func invited(t *testing.T, calendar doc) (*ics.Calendar, *ics.VEvent) {
	t.Helper()
	got := parts(t, arrived(t, with(doc{"html": "<p>See you.</p>", "calendar": calendar})))
	require.Len(t, got, 6)
	entry, file := got[4], got[5]
	require.Equal(t, []string{"multipart/mixed", "multipart/alternative", "text/plain", "text/html", "text/calendar", "application/ics"},
		[]string{got[0].media, got[1].media, got[2].media, got[3].media, entry.media, file.media})
	require.Equal(t, "invite.ics", file.file)
	require.Equal(t, entry.body, file.body)
	for line := range strings.SplitSeq(entry.body, "\r\n") {
		require.LessOrEqual(t, len(line), 75)
		require.NotContains(t, line, "\n")
	}
	parsed, err := ics.ParseCalendar(strings.NewReader(entry.body))
	require.NoError(t, err)
	require.Len(t, parsed.Events(), 1)
	require.Equal(t, map[string]string{"charset": "utf-8", "method": method(parsed)}, entry.params, "the part's method is the entry's")
	return parsed, parsed.Events()[0]
}

func method(c *ics.Calendar) string {
	for _, p := range c.CalendarProperties {
		if p.IANAToken == string(ics.PropertyMethod) {
			return p.Value
		}
	}
	return ""
}

func value(e *ics.VEvent, property ics.ComponentProperty) string {
	if p := e.GetProperty(property); p != nil {
		return p.Value
	}
	return ""
}

func TestInvitationIsOneThatCalendarsOpen(t *testing.T) {
	t.Parallel()
	description := "Bring:\n- a, b; c\\d\r\n- \"quotes\" " + strings.Repeat("漢字かな", 60)
	c, e := invited(t, meeting(doc{
		"summary": "Zürich; Raum 7, 2. Stock", "description": description, "location": "Bahnhofstraße 1", "url": "https://example.com/b/1?x=1&y=2",
		"organizer": `"Büro, Zürich" <office@example.com>`, "attendees": []string{"Ada \"the\" Countess <" + ada + ">", "o'brien+x@example.com"}[1:],
	}))
	require.Equal(t, "REQUEST", method(c))
	require.Equal(t, "booking-4711@example.com", e.Id())
	require.Equal(t, "0", value(e, ics.ComponentPropertySequence))
	require.Equal(t, "CONFIRMED", value(e, ics.ComponentPropertyStatus))
	require.Equal(t, "20260329T070000Z", value(e, ics.ComponentPropertyDtStart), "09:00 in Berlin, on the day on which its summer time begins")
	require.Equal(t, "20260329T080000Z", value(e, ics.ComponentPropertyDtEnd))
	require.Equal(t, "Zürich; Raum 7, 2. Stock", value(e, ics.ComponentPropertySummary))
	require.Equal(t, strings.ReplaceAll(description, "\r\n", "\n"), value(e, ics.ComponentPropertyDescription))
	require.Equal(t, "Bahnhofstraße 1", value(e, ics.ComponentPropertyLocation))
	require.Equal(t, "https://example.com/b/1?x=1&y=2", value(e, ics.ComponentPropertyUrl))
	organizer := e.GetProperty(ics.ComponentPropertyOrganizer)
	require.Equal(t, "mailto:office@example.com", organizer.Value)
	require.Equal(t, []string{"Büro, Zürich"}, organizer.ICalParameters["CN"])
	require.Len(t, e.Attendees(), 1)
	attendee := e.Attendees()[0]
	require.Equal(t, "o'brien+x@example.com", attendee.Email())
	require.Equal(t, map[string][]string{"ROLE": {"REQ-PARTICIPANT"}, "PARTSTAT": {"NEEDS-ACTION"}, "RSVP": {"TRUE"}}, attendee.ICalParameters)
	stamp, err := e.GetDtStampTime()
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), stamp, time.Minute+ample)
}

func TestInvitationTakesFromTheMailWhatItDoesNotSay(t *testing.T) {
	t.Parallel()
	_, e := invited(t, meeting(nil))
	require.Equal(t, "Booked "+secret, value(e, ics.ComponentPropertySummary))
	organizer := e.GetProperty(ics.ComponentPropertyOrganizer)
	require.Equal(t, "mailto:calendar@example.org", organizer.Value)
	require.Equal(t, []string{"Calendar"}, organizer.ICalParameters["CN"])
	var who []string
	for _, a := range e.Attendees() {
		who = append(who, a.Email())
	}
	require.Equal(t, []string{ada, bob}, who)
	require.Nil(t, e.GetProperty(ics.ComponentPropertyLocation))
	require.Nil(t, e.GetProperty(ics.ComponentPropertyDescription))
}

func TestRescheduleAndCancellationBelongToTheInvitation(t *testing.T) {
	t.Parallel()
	_, first := invited(t, meeting(nil))
	c, moved := invited(t, meeting(doc{"method": "reschedule", "sequence": 1, "start": "2026-03-29T12:00:00Z", "end": "2026-03-29T13:00:00Z"}))
	require.Equal(t, "REQUEST", method(c))
	require.Equal(t, first.Id(), moved.Id())
	require.Equal(t, "1", value(moved, ics.ComponentPropertySequence))
	require.Equal(t, "20260329T120000Z", value(moved, ics.ComponentPropertyDtStart))

	c, gone := invited(t, meeting(doc{"method": "cancel", "sequence": 2}))
	require.Equal(t, "CANCEL", method(c))
	require.Equal(t, first.Id(), gone.Id())
	require.Equal(t, "2", value(gone, ics.ComponentPropertySequence))
	require.Equal(t, "CANCELLED", value(gone, ics.ComponentPropertyStatus))
	require.Len(t, gone.Attendees(), 2)
	require.NotNil(t, gone.GetProperty(ics.ComponentPropertyOrganizer))
}

func TestAddressesInEntriesAreURIs(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"o'brien+x@example.com": "o'brien+x@example.com", "100%@example.com": "100%25@example.com", `a b"@example.com`: "a%20b%22@example.com",
		"ü@example.com": "%C3%BC@example.com",
	} {
		require.Equal(t, want, escapeAddress(address))
	}
}

func TestFoldBreaksBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "short", strings.Repeat("a", 75), strings.Repeat("a", 76), strings.Repeat("ü", 200), "a" + strings.Repeat("\U0001F680", 99), strings.Repeat("b", 1000)} {
		folded := string(fold([]byte(line + "\r\nnext\r\n")))
		require.Equal(t, line+"\r\nnext\r\n", strings.ReplaceAll(folded, "\r\n ", ""))
		for part := range strings.SplitSeq(folded, "\r\n") {
			require.LessOrEqual(t, len(part), 75)
			require.True(t, len(part) > 0 || line == "" || strings.HasSuffix(folded, part))
			require.Equal(t, part, strings.ToValidUTF8(part, "?"))
		}
	}
}
