package relay

import (
	"context"
	"sync"
	"time"
)

// want is an id that may have to go, and what is known of how it came.
type want struct {
	id        string
	xid       int64 // transaction of the stream, 32 bits; -1 if unknown
	lsn       uint64
	committed time.Time
	source    string
	wait      time.Duration // the last delay that it was parked for
}

const (
	sourceStream = "stream"
	sourcePoller = "poller"
)

// inbox holds the ids of one table that wait for their claim: queued, or parked until a time or until their
// line settles. It never holds an id twice and never more than its bound; what overflows is
// the poller's to find. Parked ids take at most half of it, so that those which may go find room whatever waits. Safe for concurrent use.
type inbox struct {
	bound  int
	signal func() // called without the lock when something is queued

	mu     sync.Mutex
	queue  []string // ids in the order in which they came; those not in queued any more are skipped
	queued map[string]want
	parked parking
	space  chan struct{} // closed and replaced when ids were pulled
}

func newInbox(bound int, signal func()) *inbox {
	return &inbox{bound: bound, signal: signal, queued: map[string]want{}, parked: newParking(bound / 2), space: make(chan struct{})}
}

// push queues ids and returns those for which there was no room.
func (b *inbox) push(wants ...want) (left []want) {
	b.mu.Lock()
	added := false
	for i, w := range wants {
		if !b.add(w) {
			left = wants[i:]
			break
		}
		added = true
	}
	b.mu.Unlock()
	if added {
		b.signal()
	}
	return left
}

func (b *inbox) add(w want) bool {
	if b.parked.has(w.id) {
		return true // it waits for a time or for its line; asking again sooner would bring the same answer
	}
	if old, ok := b.queued[w.id]; ok {
		old.lsn = max(old.lsn, w.lsn)
		if w.source == sourcePoller {
			old.source = w.source
		}
		b.queued[w.id] = old
		return true
	}
	if len(b.queued)+b.parked.len() >= b.bound {
		return false
	}
	b.queued[w.id] = w
	b.queue = append(b.queue, w.id)
	return true
}

// offer pushes ids and waits for room, until ctx ends.
func (b *inbox) offer(ctx context.Context, wants []want) error {
	for {
		b.mu.Lock()
		space := b.space
		b.mu.Unlock()
		if wants = b.push(wants...); len(wants) == 0 {
			return nil
		}
		select {
		case <-space:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pull takes up to n queued ids, oldest first, after queueing what is due.
func (b *inbox) pull(n int, now time.Time) []want {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enqueue(b.parked.takeDue(now))
	var wants []want
	i := 0
	for ; i < len(b.queue) && len(wants) < n; i++ {
		if w, ok := b.queued[b.queue[i]]; ok {
			wants = append(wants, w)
			delete(b.queued, w.id)
		}
	}
	b.queue = b.queue[i:]
	if len(b.queue) == 0 {
		b.queue = nil
	}
	if len(wants) > 0 {
		close(b.space)
		b.space = make(chan struct{})
	}
	return wants
}

// park keeps an id for a while, or until its line settles.
func (b *inbox) park(w want, now time.Time, line *lineKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.queued[w.id]; !ok { // else it was asked for meanwhile
		b.parked.add(w, now.Add(w.wait), line)
	}
}

// wake queues the first n ids of a line that has settled.
func (b *inbox) wake(line lineKey, n int) {
	b.mu.Lock()
	woken := b.parked.takeLine(line, n)
	b.enqueue(woken)
	news := len(woken) > 0 || len(b.parked.dry) > 0
	b.mu.Unlock()
	if news {
		b.signal()
	}
}

// takeDry takes the lines for whose next ids the table has to be asked.
func (b *inbox) takeDry() []lineKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.parked.takeDry()
}

// more notes that the table has more of a line than is known here.
func (b *inbox) more(line lineKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked.more[line] = true
}

// unfilled gives lines back for whose next ids the table could not be asked.
func (b *inbox) unfilled(lines []lineKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked.dry = append(b.parked.dry, lines...)
}

func (b *inbox) enqueue(wants []want) {
	for _, w := range wants {
		b.queued[w.id] = w
		b.queue = append(b.queue, w.id)
	}
}

// next queues what was due at a time and says when more will be, zero if nothing waits for a time. Whoever keeps the queue from being
// pulled, a destination without room say, signals when that ends; the time of a parked id must not be asked for again and
// again meanwhile.
func (b *inbox) next(due time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enqueue(b.parked.takeDue(due))
	return b.parked.next()
}

// size is how many ids are held.
func (b *inbox) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queued) + b.parked.len()
}
