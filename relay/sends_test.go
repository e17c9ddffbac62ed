package relay

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// toMail has routes that send at most once: mail to recipients, and messages to queues.
var toMail = config.Outbox{
	Table: "pgrelay.outbox_events", Sends: config.Sends{Table: "pgrelay.notification_sends"},
	Routes: []config.Route{{Kind: "m*", To: "mail"}, {Kind: "q*", To: "queue", Delivery: config.AtMostOnce}, {Kind: "p*", To: "queue"}},
}

const insertMail = `INSERT INTO pgrelay.outbox_events (event_type, payload) SELECT 'm', $1::jsonb FROM generate_series(1, $2::int) RETURNING id::text`

// sent counts what arrived by event and recipient.
func (f *fixture) sent(pub string) map[string]int {
	got := map[string]int{}
	for _, m := range f.pubs[pub].messages() {
		got[m.EventID+" "+m.Recipient]++
	}
	return got
}

// sends are the claims of an event, in their order.
func (f *fixture) sends(id string) string {
	f.t.Helper()
	return f.one(`SELECT coalesce(string_agg(recipient || CASE WHEN sent_at IS NULL THEN ' claimed' ELSE ' sent' END || coalesce(' ' || last_error, ''), ', ' ORDER BY recipient), '')
		FROM pgrelay.notification_sends JOIN pgrelay.outbox_events e ON e.event_id::text = notification_sends.event_id WHERE e.id::text = $1`, id)
}

// fate is a row's mark, and what failures says of it.
func (f *fixture) fate(id string) string {
	f.t.Helper()
	return f.one(`SELECT concat_ws(' ', s.status, 'attempts=' || nullif(s.attempts, 0), nullif(s.last_error, '')) FROM pgrelay.outbox_event_status s WHERE id::text = $1`, id)
}

func result(o Outcome) Result { return Result{Outcome: o, Reason: "code", Detail: "550 no"} }

func TestEachRecipientGetsOneMailAndAClaimThatSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail)
	f.start()
	ids := f.ids(insertMail, `["ann@x", "bob@x", "cid@x"]`, 40)
	f.offer(ids...)
	f.settled(0)
	sent := f.sent("mail")
	require.Len(t, sent, 120)
	for key, n := range sent {
		require.Equal(t, 1, n, key)
	}
	require.Equal(t, "ann@x sent, bob@x sent, cid@x sent", f.sends(ids[7]))
	require.Equal(t, "PUBLISHED", f.fate(ids[7]))
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = NULL`)
	f.offer(ids...)
	f.settled(0)
	require.Len(t, f.pubs["mail"].messages(), 120, "rows that a hand set back are marked and not sent")
	require.NoError(t, f.stop())
}

// ends offers a row until it is settled and returns its fate.
func (f *fixture) ends(id string) (fate string) {
	f.t.Helper()
	pgtest.Eventually(f.t, longEnough, func() error {
		f.offer(id)
		fate = f.fate(id)
		if status, _, _ := strings.Cut(fate, " "); status == "PENDING" || status == "PROCESSING" || status == "RETRYING" {
			return errors.New(fate)
		}
		return nil
	}, "the row is settled")
	return fate
}

// byName answers as a recipient's name says: gone, lost or never; later only so often.
func byName(later int) func(m *Message) Result {
	return func(m *Message) Result {
		name, _, _ := strings.Cut(m.Recipient, "@")
		switch {
		case name == "gone":
			return result(OutcomeRejected)
		case name == "lost":
			return result(OutcomeUnknown)
		case name == "later" && later > 0:
			later--
			return result(OutcomeRetry)
		case name == "never":
			return result(OutcomeRetry)
		default:
			return result(OutcomeDelivered)
		}
	}
}

func TestOneRecipientsFateIsNotTheOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ to, fate, sends string }{
		"refused for good": {
			`["ann@x", "gone@x", "bob@x"]`,
			"DEAD attempts=1 code: refused for good: gone@x (code: 550 no)", "ann@x sent, bob@x sent",
		},
		"unknown": {
			`["ann@x", "lost@x", "bob@x"]`,
			"UNCERTAIN uncertain: unknown whether it arrived: lost@x (code: 550 no)", "ann@x sent, bob@x sent, lost@x claimed code: 550 no",
		},
		"later": {`["ann@x", "later@x", "bob@x"]`, "PUBLISHED", "ann@x sent, bob@x sent, later@x sent"},
		"later beside one refused": {
			`["gone@x", "later@x", "bob@x"]`,
			"DEAD attempts=3 code: refused for good: gone@x (code: 550 no)", "bob@x sent, later@x sent",
		},
		"later beside one unknown": {
			`["lost@x", "later@x"]`,
			"UNCERTAIN attempts=2 uncertain: unknown whether it arrived: lost@x (uncertain: " + detailHeld + ")", "later@x sent, lost@x claimed code: 550 no",
		},
		"refused and unknown": {
			`["gone@x", "lost@x"]`,
			"DEAD attempts=1 code: refused for good: gone@x (code: 550 no); unknown whether it arrived: lost@x (code: 550 no)", "lost@x claimed code: 550 no",
		},
		"never": {`["ann@x", "never@x"]`, "DEAD attempts=3 code: never@x (code: 550 no)", "ann@x sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, toMail)
			asked := map[string]int{}
			answer := byName(2)
			f.pubs["mail"].script(func(m *Message) Result {
				asked[m.Recipient]++
				return answer(m)
			})
			f.start()
			id := f.one(insertMail, test.to, 1)
			require.Equal(t, test.fate, f.ends(id))
			require.Equal(t, test.sends, f.sends(id))
			for to, n := range asked {
				if !strings.HasPrefix(to, "later") && !strings.HasPrefix(to, "never") {
					require.Equal(t, 1, n, to)
				}
			}
			require.NoError(t, f.stop())
		})
	}
}
