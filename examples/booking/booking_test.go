package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/exampletest"
	"pgrelay/internal/smtptest"
	"pgrelay/internal/stage"
)

type world struct {
	*exampletest.World
	t    *testing.T
	mail *smtptest.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: exampletest.New(t, queue), t: t}
	w.mail = w.MailServer()
	return w
}

func (w *world) booking(guests ...string) *booking {
	start := time.Date(2027, 5, 3, 9, 0, 0, 0, time.UTC)
	return &booking{Title: "Room 7", Guests: guests, Start: start, End: start.Add(time.Hour)}
}

// book makes a booking.
func (w *world) book(guests ...string) *booking {
	w.t.Helper()
	b := w.booking(guests...)
	require.NoError(w.t, book(w.t.Context(), w.Conn, b))
	return b
}

// has waits until so many events have a status.
func (w *world) has(n int, status string) {
	w.t.Helper()
	w.Eventually(fmt.Sprint(n), `SELECT count(*)::text FROM outbox_events WHERE status = $1`, status)
}

// mailed counts the mails by recipient.
func (w *world) mailed() map[string]int {
	w.t.Helper()
	mails := map[string]int{}
	for _, m := range w.mail.Mails() {
		mails[m.To]++
	}
	return mails
}

func TestABookingIsOneMessageAndOneMailToEachGuest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.Start()
	b := w.book("ada@example.com", "Béla <bela@example.com>", "chen@example.com")
	require.NoError(t, reschedule(t.Context(), w.Conn, b, time.Hour))
	require.NoError(t, cancel(t.Context(), w.Conn, b))
	w.has(6, "PUBLISHED")
	require.NoError(t, d.Stop())
	require.Equal(t, map[string]int{"ada@example.com": 3, "bela@example.com": 3, "chen@example.com": 3}, w.mailed())
	var kinds []string
	for _, m := range w.SQS.Messages(queue) {
		kinds = append(kinds, m.Attributes["event_type"].Value)
	}
	require.Equal(t, []string{"BOOKING_CONFIRMED", "BOOKING_RESCHEDULED", "BOOKING_CANCELLED"}, kinds)
	require.Equal(t, []string{"6 9 0"}, w.Strings(`SELECT (SELECT count(*) FROM processed_events) || ' ' || count(*) || ' ' || count(*) FILTER (WHERE sent_at IS NULL)
		FROM booking_notification_sends`))
	for i, subject := range []string{"Invitation: Room 7", "Rescheduled: Room 7", "Cancelled: Room 7"} {
		require.Contains(t, string(w.mail.MailsTo("ada@example.com")[i].Data), "Subject: "+subject)
	}
}

func TestCheckFindsNothingWrongWithTheTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for line := range strings.Lines(w.Done("check")) {
		if !strings.Contains(line, "slot limit") {
			require.NotRegexp(t, "^(warning|failed|error)", line)
		}
	}
}

func TestWhatIsRolledBackIsNeitherAMessageNorAMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.Start()
	tx, err := w.Conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, book(t.Context(), tx, w.booking("nobody@example.com")))
	require.NoError(t, tx.Rollback(t.Context()))
	w.book("ada@example.com")
	w.has(2, "PUBLISHED")
	require.NoError(t, d.Stop())
	require.Equal(t, map[string]int{"ada@example.com": 1}, w.mailed())
	require.Equal(t, 1, w.SQS.Count(queue))
}

func TestAGuestWhoIsRefusedForNowIsTriedAgainAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Edit("initial: 1s", "initial: 50ms")
	var refused atomic.Bool
	w.mail.SetFault(func(c smtptest.Command) (fault smtptest.Fault) {
		if c.Verb == "RCPT" && c.Recipient == "bela@example.com" && !refused.Swap(true) {
			fault.Reply = "451 4.7.1 greylisted"
		}
		return fault
	})
	d := w.Start()
	w.book("ada@example.com", "bela@example.com", "chen@example.com")
	w.has(2, "PUBLISHED")
	require.NoError(t, d.Stop())
	require.True(t, refused.Load())
	require.Equal(t, map[string]int{"ada@example.com": 1, "bela@example.com": 1, "chen@example.com": 1}, w.mailed())
	require.Equal(t, []string{"1"}, w.Strings(`SELECT attempts::text FROM outbox_events WHERE event_type = 'INVITATION'`))
}

func TestAnEventWhoseAttemptsAreUsedUpIsDeadAndNamesTheGuest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Edit("max_attempts: 10, initial: 1s", "max_attempts: 3, initial: 50ms")
	w.mail.SetFault(smtptest.For("bela@example.com", "RCPT", smtptest.Fault{Reply: "450 4.2.1 mailbox busy"}))
	d := w.Start()
	w.book("ada@example.com", "bela@example.com")
	w.has(1, "FAILED")
	require.NoError(t, d.Stop())
	require.Equal(t, map[string]int{"ada@example.com": 1}, w.mailed())
	require.Contains(t, w.Strings(`SELECT attempts || ' ' || last_error FROM outbox_events WHERE status = 'FAILED'`)[0], "bela@example.com")
	require.Equal(t, []string{"ada@example.com true"}, w.Strings(`SELECT recipient || ' ' || (sent_at IS NOT NULL) FROM booking_notification_sends`),
		"the claim of a mail that was refused is released")
}

func TestAnEventOfTheLedgerDoesNotGoOutAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.Start()
	w.book("ada@example.com")
	w.has(2, "PUBLISHED")
	w.Exec(`UPDATE outbox_events SET status = 'PENDING'`)
	w.has(2, "PUBLISHED")
	require.NoError(t, d.Stop())
	require.Equal(t, map[string]int{"ada@example.com": 1}, w.mailed())
	require.Equal(t, 1, w.SQS.Count(queue))
}

func TestTheRunnerPlaysToItsEnd(t *testing.T) {
	t.Parallel()
	var printed strings.Builder
	err := stage.Run(t.Context(), &printed, exampletest.Build(t), play())
	require.NoError(t, err, "%s", printed.String())
}
