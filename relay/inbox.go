package relay

import (
	"container/heap"
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
// the poller's to find. Safe for concurrent use.
type inbox struct {
	bound  int
	signal func() // called without the lock when something is queued

	mu     sync.Mutex
	queue  []string // ids in the order in which they came; those not in queued any more are skipped
	queued map[string]want
	parked map[string]*parkedWant
	times  parkHeap
	lines  map[lineKey]*waiters
	space  chan struct{} // closed and replaced when ids were pulled
}

type parkedWant struct {
	want
	at    time.Time
	line  *lineKey
	index int // in the heap; -1 once it has left
}

// waiters are the parked ids of one line in the order in which they came. Those that have left are
// passed over.
type waiters struct {
	ps   []*parkedWant
	live int
}

// restagger is how many ids of one line are asked for again at a time while nothing is heard of the line: its
// settling wakes it, so the timer is only for a row that somebody else held.
const restagger = 50

func newInbox(bound int, signal func()) *inbox {
	return &inbox{
		bound: bound, signal: signal, queued: map[string]want{}, parked: map[string]*parkedWant{},
		lines: map[lineKey]*waiters{}, space: make(chan struct{}),
	}
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
	if p, ok := b.parked[w.id]; ok {
		// It waits for a time or for its line; asking again sooner would bring the same answer.
		p.lsn = max(p.lsn, w.lsn)
		return true
	}
	if old, ok := b.queued[w.id]; ok {
		old.lsn = max(old.lsn, w.lsn)
		if w.source == sourcePoller {
			old.source = w.source
		}
		b.queued[w.id] = old
		return true
	}
	if len(b.queued)+len(b.parked) >= b.bound {
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
	b.promote(now)
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
	if _, ok := b.queued[w.id]; ok {
		return // asked for meanwhile
	}
	if _, ok := b.parked[w.id]; ok {
		return
	}
	p := &parkedWant{want: w, at: now.Add(w.wait), line: line}
	if line != nil {
		l := b.lines[*line]
		if l == nil {
			l = &waiters{}
			b.lines[*line] = l
		}
		p.at = p.at.Add(time.Duration(l.live/restagger) * time.Second)
		l.ps = append(l.ps, p)
		l.live++
	}
	b.parked[w.id] = p
	heap.Push(&b.times, p)
}

// wake queues up to n ids of a line that has settled, in the order in which they came.
func (b *inbox) wake(line lineKey, n int) {
	b.mu.Lock()
	l, woken := b.lines[line], false
	for l != nil && n > 0 && l.live > 0 {
		p := l.ps[0]
		l.ps = l.ps[1:]
		if p.index >= 0 {
			b.unpark(p)
			n--
			woken = true
		}
	}
	b.mu.Unlock()
	if woken {
		b.signal()
	}
}

func (b *inbox) promote(now time.Time) {
	for len(b.times) > 0 && !b.times[0].at.After(now) {
		b.unpark(b.times[0])
	}
}

func (b *inbox) unpark(p *parkedWant) {
	heap.Remove(&b.times, p.index)
	delete(b.parked, p.id)
	if p.line != nil {
		if b.lines[*p.line].live--; b.lines[*p.line].live == 0 {
			delete(b.lines, *p.line)
		}
	}
	b.queued[p.id] = p.want
	b.queue = append(b.queue, p.id)
}

// next is when something is queued or due: now if it is, zero if nothing waits.
func (b *inbox) next(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.queued) > 0:
		return now
	case len(b.times) > 0:
		return b.times[0].at
	default:
		return time.Time{}
	}
}

// size is how many ids are held.
func (b *inbox) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queued) + len(b.parked)
}

// parkHeap orders parked ids by their time.
type parkHeap []*parkedWant

func (h parkHeap) Len() int           { return len(h) }
func (h parkHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h parkHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }

// Push implements heap.Interface.
func (h *parkHeap) Push(x any) {
	p := x.(*parkedWant)
	p.index = len(*h)
	*h = append(*h, p)
}

// Pop implements heap.Interface.
func (h *parkHeap) Pop() any {
	old := *h
	p := old[len(old)-1]
	p.index = -1
	*h = old[:len(old)-1]
	return p
}
