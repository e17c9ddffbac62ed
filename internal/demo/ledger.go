package main

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"pgrelay/internal/sqstest"
)

// event is an outbox row that the demo committed.
type event struct {
	row       int64
	id        string // the event id
	key       string
	committed time.Time // when COMMIT was sent
	timed     bool      // counts for the latency: nothing was in its way on purpose
}

// ledger is what was committed, by writers that run side by side.
type ledger struct {
	mu     sync.Mutex
	events []event
	extra  int // messages that republish asked for
}

func (l *ledger) add(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// expected is how many messages should have arrived when nothing is on its way.
func (l *ledger) expected() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events) + l.extra
}

// summary compares what was committed with what arrived.
type summary struct {
	sent, received, lost, duplicates, republished, strangers, disordered int
	latencies                                                            []time.Duration // ascending
}

// adds says whether the count adds up.
func (s summary) adds() bool {
	return s.received == s.sent && s.lost == 0 && s.duplicates == 0 && s.strangers == 0 && s.disordered == 0
}

// quantile of the latencies; 0 where there are none.
func (s summary) quantile(q float64) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	return s.latencies[min(int(q*float64(len(s.latencies))), len(s.latencies)-1)]
}

// settle counts. swallowed is how many sends the queue's deduplication dropped: those
// were duplicates as well.
func (l *ledger) settle(messages []sqstest.Message, swallowed int) summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := summary{sent: len(l.events), republished: l.extra}
	known := map[string]event{}
	for _, e := range l.events {
		known[e.id] = e
	}
	seen := map[string]bool{}
	last := map[string]int64{} // the row that arrived last, by key
	repeats := swallowed
	for _, m := range messages {
		id := m.Attributes["event_id"].Value
		e, committed := known[id]
		switch {
		case !committed:
			s.strangers++
		case seen[id]:
			repeats++
		default:
			seen[id] = true
			// Rows of one key get their ids under the lock on its room, in the order of their commits.
			if e.row < last[e.key] {
				s.disordered++
			}
			last[e.key] = e.row
			if e.timed {
				s.latencies = append(s.latencies, m.ReceivedAt.Sub(e.committed))
			}
		}
	}
	slices.SortFunc(s.latencies, cmp.Compare)
	s.received = len(seen)
	s.lost = s.sent - s.received
	s.duplicates = repeats - s.republished
	return s
}
