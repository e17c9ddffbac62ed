package e2e_test

import (
	"bytes"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/smtptest"
)

// newMailWorld is a world whose rows of kind mail go to a mail server.
func newMailWorld(t *testing.T) (*world, *smtptest.Server) {
	t.Helper()
	s := smtptest.Start(t, smtptest.Options{Extensions: []string{"8BITMIME"}})
	return newWorld(t, sections{
		"destinations": fmt.Sprintf("{mail: {type: smtp, host: %s, port: %d, tls: none, from: Calendar <calendar@example.org>, timeout: 30s, pause: {initial: 20ms, max: 200ms}}}",
			s.Host(), s.Port()),
		"outboxes": `[{table: pgrelay.outbox_events, routes: [{kind: mail, to: mail}]}]`,
	}), s
}

// invite adds events 1 to n, each for three recipients of its own: ada-N, bob-N and carol-N.
func (w *world) invite(n int) {
	w.t.Helper()
	w.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload)
		SELECT 'mail', jsonb_build_object('to', ARRAY['Ada <ada-' || n || '@example.com>', 'bob-' || n || '@example.com'], 'cc', 'carol-' || n || '@example.com',
		       'subject', 'Raum ' || n || ' für Sie', 'text', 'Bis Montag.', 'calendar', jsonb_build_object('method', 'request', 'uid', 'booking-' || n,
		       'start', '2026-03-02T09:00:00+01:00', 'end', '2026-03-02T10:00:00+01:00'))
		  FROM generate_series(1, $1::int) n`, n)
}

func recipient(name string, event int) string { return fmt.Sprintf("%s-%d@example.com", name, event) }

func TestMailGoesOnceToEachRecipientWhateverTheOthersAnswer(t *testing.T) {
	t.Parallel()
	w, s := newMailWorld(t)
	deferred := make(chan struct{}, 1)
	deferred <- struct{}{}
	s.SetFault(func(c smtptest.Command) smtptest.Fault {
		switch {
		case c.Verb == "RCPT" && c.Recipient == recipient("bob", 2):
			return smtptest.Fault{Reply: "550 5.1.1 unknown"}
		case c.Verb == "RCPT" && c.Recipient == recipient("bob", 3):
			select {
			case <-deferred:
				return smtptest.Fault{Reply: "450 4.2.1 later"}
			default:
			}
		case c.Verb == "DOT" && c.Recipient == recipient("ada", 4):
			return smtptest.Fault{Accept: true, Cut: true}
		}
		return smtptest.Fault{}
	})
	w.invite(4)
	w.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('mail', '{"to": "ada-5@example.com", "subject": "s", "text": "t", "bcc": "x@example.com"}')`)
	require.Contains(t, w.done("check"), "takes mail from Calendar <calendar@example.org>")
	require.Contains(t, w.done("render", "--table", "pgrelay.outbox_events", "--id", "2"), recipient("carol", 2))

	w.start()
	w.eventually("1 PUBLISHED, 2 DEAD recipient_refused, 3 PUBLISHED, 4 UNCERTAIN uncertain, 5 DEAD malformed_mail",
		`SELECT string_agg(id || ' ' || s.status || coalesce(' ' || f.reason, ''), ', ' ORDER BY id)
		   FROM pgrelay.outbox_event_status s LEFT JOIN pgrelay.failures f ON f.row_id = s.id::text`)
	for event := 1; event <= 4; event++ {
		for _, name := range []string{"ada", "bob", "carol"} {
			want := 1
			if name == "bob" && event == 2 {
				want = 0
			}
			mails := s.MailsTo(recipient(name, event))
			require.Len(t, mails, want, "%s of event %d", name, event)
			for _, m := range mails {
				got, err := mail.ReadMessage(bytes.NewReader(m.Data))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf(`"Ada" <ada-%d@example.com>, <bob-%d@example.com>`, event, event), got.Header.Get("To"))
			}
		}
	}
	require.Contains(t, w.string(`SELECT last_error FROM pgrelay.outbox_event_status WHERE id = 2`), recipient("bob", 2))
	require.Equal(t, "10 sent, 1 not known", w.string(`SELECT count(sent_at) || ' sent, ' || count(*) FILTER (WHERE sent_at IS NULL) || ' not known' FROM pgrelay.notification_sends`))
}

func TestKilledProcessMailsNobodyTwice(t *testing.T) {
	t.Parallel()
	w, s := newMailWorld(t)
	const events = 40
	w.invite(events)
	p := w.start()
	pgtest.Eventually(t, patience, func() error {
		if n := len(s.Mails()); n < events {
			return fmt.Errorf("%d mails", n)
		}
		return nil
	}, "mails")
	p.kill()
	w.start()
	w.settled(0)
	of := map[string]int{}
	for _, m := range s.Mails() {
		of[m.To]++
		require.Equal(t, 1, of[m.To], m.To)
	}
	require.Equal(t, "0", w.string(`SELECT count(*)::text FROM pgrelay.outbox_event_status WHERE status NOT IN ('PUBLISHED', 'UNCERTAIN')`))
	uncertain := w.strings(`SELECT substring(payload->>'cc' FROM '[0-9]+') FROM pgrelay.outbox_event_status WHERE status = 'UNCERTAIN'`)
	require.LessOrEqual(t, len(uncertain), 8, "no more than were on their way")
	for event := 1; event <= events; event++ {
		for _, name := range []string{"ada", "bob", "carol"} {
			if of[recipient(name, event)] == 0 {
				require.Contains(t, uncertain, fmt.Sprint(event), "who has no mail is listed")
			}
		}
	}
}

// TestMailServerThatFallsSilentIsAtFault: nobody stopped the call, its time was over.
func TestMailServerThatFallsSilentIsAtFault(t *testing.T) {
	t.Parallel()
	w, s := newMailWorld(t)
	w.configure(sections{
		"destinations": fmt.Sprintf("{mail: {type: smtp, host: %s, port: %d, tls: none, from: a@example.org, timeout: 1s}}", s.Host(), s.Port()),
		"outboxes":     `[{table: pgrelay.outbox_events, routes: [{kind: mail, to: mail}]}]`,
	})
	s.SetFault(smtptest.On("RCPT", smtptest.Fault{Hang: true}))
	w.invite(1)
	p := w.start()
	pgtest.Eventually(t, patience, func() bool {
		return slices.ContainsFunc(p.logged("destination paused"), func(e entry) bool {
			return strings.Contains(fmt.Sprint(e["detail"]), "no answer at RCPT within 1s")
		})
	}, "the destination is paused")
	w.eventually("PENDING, 0 sends", `SELECT status || ', ' || (SELECT count(*) FROM pgrelay.notification_sends) || ' sends' FROM pgrelay.outbox_event_status`)
}
