package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/exampletest"
	"pgrelay/internal/pgtest"
	"pgrelay/internal/smtptest"
	"pgrelay/internal/stage"
)

const (
	guests      = 3 // of each booking
	kills       = 6
	connections = 8                 // the default of a mail server's concurrency
	other       = "ada@example.com" // a guest whom nothing happens to
)

// fate is what is known of a guest's mail in the end.
type fate int

const (
	hasOne fate = iota
	isDead
	isUncertain
)

// address is that of a guest: its number decides what the mail server does to it.
func address(n int) string { return fmt.Sprintf("guest-%d@example.com", n) }

// trouble is what the mail server does to every guest whose number ends so; the rest have none. Once: only at the first try. A kill
// may make any guest uncertain; ends says what else may become of them.
var trouble = map[int]struct {
	verb  string
	fault smtptest.Fault
	once  bool
	ends  fate
}{
	3:  {verb: "RCPT", fault: smtptest.Fault{Reply: "550 5.1.1 no such user"}, ends: isDead},
	17: {verb: "RCPT", fault: smtptest.Fault{Reply: "451 4.7.1 greylisted"}, once: true},
	29: {verb: "DOT", fault: smtptest.Fault{Reply: "554 5.6.0 not here"}, ends: isDead},
	31: {verb: "DOT", fault: smtptest.Fault{Reply: "452 4.3.1 disk full"}, once: true},
	43: {verb: "DOT", fault: smtptest.Fault{Accept: true, Cut: true}, ends: isUncertain}, // has its mail, and nobody hears of it
	59: {verb: "DOT", fault: smtptest.Fault{Cut: true}, ends: isUncertain},
	61: {verb: "RCPT", fault: smtptest.Fault{Reply: "450 4.2.1 mailbox busy"}, ends: isDead}, // until its attempts are used up
	71: {verb: "DATA", fault: smtptest.Fault{Cut: true}, once: true},
}

// misbehave makes the server do that. Mails take some time, so that kills meet some that are on their way.
func misbehave(server *smtptest.Server) {
	var mu sync.Mutex
	tried := map[string]bool{}
	server.SetFault(func(c smtptest.Command) (fault smtptest.Fault) {
		var n int
		_, _ = fmt.Sscanf(c.Recipient, "guest-%d@", &n) // none before RCPT
		if trouble, ok := trouble[n%100]; ok && c.Verb == trouble.verb {
			mu.Lock()
			defer mu.Unlock()
			if !trouble.once || !tried[c.Recipient] {
				fault = trouble.fault
			}
			tried[c.Recipient] = true
		}
		if c.Verb == "DOT" {
			fault.Delay = 5 * time.Millisecond
		}
		return fault
	})
}

// TestEachGuestHasOneMailOrAReasonWhateverBreaks has BOOKING_EVENTS bookings with three guests each; `make example-booking-full` asks
// for a thousand.
func TestEachGuestHasOneMailOrAReasonWhateverBreaks(t *testing.T) {
	t.Parallel()
	events := 150
	if given := os.Getenv("BOOKING_EVENTS"); given != "" {
		var err error
		events, err = strconv.Atoi(given)
		require.NoError(t, err)
	}
	patience := exampletest.Patience * time.Duration(1+events/200)
	w := newWorld(t)
	w.Edit("max_attempts: 10, initial: 1s, max: 5m", "max_attempts: 4, initial: 50ms, max: 500ms")
	misbehave(w.mail)
	for n := range events {
		b := w.booking(address(guests*n), address(guests*n+1), address(guests*n+2))
		require.NoError(t, book(t.Context(), w.Conn, b))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))

	began := time.Now()
	instances := []*stage.Daemon{w.Start(), w.Start()}
	all := slices.Clone(instances)
	for kill := range kills {
		// Each has its share of the mails, so that there are some left for the last however late this test notices.
		share := guests * events / (kills + 2)
		next := kill*share + share/2 + rnd.IntN(share/2)
		pgtest.Eventually(t, patience, func() bool { return len(w.mail.Mails()) >= next }, "%d mails are out", next)
		// Only one has led since the last kill.
		i := -1
		pgtest.Eventually(t, patience, func() bool {
			i = slices.IndexFunc(instances, func(d *stage.Daemon) bool { return len(d.Logged("leading")) > 0 })
			return i >= 0
		}, "one leads")
		instances[i].Kill()
		instances[i] = w.Start()
		all = append(all, instances[i])
	}
	// An event dies of refusals for now only when the server has taken another mail since its first try, so the service goes on.
	others := 0
	pgtest.Eventually(t, patience, func() error {
		left := w.Strings(`SELECT id || ' ' || status || ' ' || attempts || coalesce(' ' || last_error, '') FROM outbox_events
			WHERE status IN ('PENDING', 'PROCESSING') ORDER BY id`)
		if len(left) == 0 {
			return nil
		}
		if len(w.mail.MailsTo(other)) == others {
			w.book(other)
			others++
		}
		return fmt.Errorf("%d are not:\n%s", len(left), strings.Join(left, "\n"))
	}, "all events are settled")
	took := time.Since(began)
	for _, d := range instances {
		require.NoError(t, d.Stop())
	}
	require.Len(t, w.SQS.Messages(queue), events+others)

	// However a lead ended, no more mails were on their way than there were connections.
	most := 0
	for _, d := range all {
		most += connections * len(d.Logged("leading"))
	}
	count := map[fate]int{}
	for n, is := range w.fates(guests * events) {
		count[is]++
		require.Contains(t, []fate{trouble[n%100].ends, isUncertain}, is, address(n))
		if trouble[n%100].ends == isUncertain {
			most++
		}
	}
	require.LessOrEqual(t, count[isUncertain], most)
	require.Equal(t, guests*events, count[hasOne]+count[isDead]+count[isUncertain])
	t.Logf("%d events, %d guests, %d kills in %s: %d have their mail, %d are dead with a reason, %d are uncertain; %d mails",
		events, guests*events, kills, took.Round(100*time.Millisecond), count[hasOne], count[isDead], count[isUncertain], len(w.mail.Mails()))
}

// fates says of so many guests what is known of their mails, and requires of each that it is true.
func (w *world) fates(guests int) (all []fate) {
	w.t.Helper()
	mails := w.mailed()
	sent := map[string]bool{}
	for _, recipient := range w.Strings(`SELECT recipient FROM booking_notification_sends WHERE sent_at IS NOT NULL`) {
		sent[recipient] = true
	}
	unknown := map[string]bool{}
	for _, s := range w.uncertain() {
		require.False(w.t, unknown[s.Recipient], s.Recipient)
		unknown[s.Recipient] = true
	}
	letters := w.dead()
	for n := range guests {
		guest := address(n)
		reason, named := letters[guest]
		require.LessOrEqual(w.t, mails[guest], 1, guest)
		switch {
		case sent[guest]:
			require.False(w.t, unknown[guest], guest)
			require.Equal(w.t, 1, mails[guest], guest)
			all = append(all, hasOne)
		case unknown[guest]:
			all = append(all, isUncertain)
		default:
			require.True(w.t, named, "%s has no mail, is not dead with a reason, and is not listed as uncertain: %s", guest, reason)
			require.Zero(w.t, mails[guest], guest)
			all = append(all, isDead)
		}
	}
	require.Empty(w.t, slices.DeleteFunc(slices.Collect(maps.Keys(mails)), func(to string) bool { return strings.HasPrefix(to, "guest-") || to == other }))
	return all
}

// send is a line of `pgrelay sends list --json`.
type send struct {
	EventID   string `json:"event_id"`
	Recipient string `json:"recipient"`
}

func (w *world) uncertain() (list []send) {
	w.t.Helper()
	require.NoError(w.t, json.Unmarshal([]byte(w.Done("sends", "list", "--uncertain", "--json")), &list))
	return list
}

// dead gives the reason of each guest whom a dead letter names.
func (w *world) dead() map[string]string {
	w.t.Helper()
	var list []struct{ Detail string }
	require.NoError(w.t, json.Unmarshal([]byte(w.Done("dead", "list", "--json")), &list))
	reasons := map[string]string{}
	for _, letter := range list {
		for _, part := range strings.Split(letter.Detail, "; ") {
			if guest := anAddress.FindString(part); guest != "" {
				reasons[guest] = part
			}
		}
	}
	return reasons
}

var anAddress = regexp.MustCompile(`[\w-]+@example\.com`)
