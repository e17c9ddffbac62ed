package poller

import (
	"sync"
	"time"

	"pgrelay/relay"
)

// watch is what the poller knows of one table. Requests come from any goroutine; the rest is the poller's alone.
type watch struct {
	table *relay.Table
	// conditional: each regular look is a full one, of rows that may have to wait once more, and the sweep needs none.
	conditional bool

	mu    sync.Mutex
	all   bool         // a full look is wanted
	sinks map[int]bool // a look for single destinations is wanted
	dueAt time.Time    // a row is due then; zero: none is known of

	lookAt  time.Time // the next regular look
	sweepAt time.Time // the next full look
	cheap   bool      // the last full look was, so that it takes the place of the pass
	mark    mark
	rest    *look // of a look that was broken off, and goes on at the next visit

	quietUntil time.Time
	quiet      time.Duration
	failing    string
}

// cheapLook is how long a full look may take to be done at every interval: at 50 ms a look a second it costs a
// twentieth of a core, and a row that was re-armed by hand is seen within an interval.
const cheapLook = 50 * time.Millisecond

// lookShare bounds what regular looks at rows that aren't ready cost: one part in so many of the time.
const lookShare = 20

// task is what one visit is to do.
type task struct {
	full  bool
	pass  bool
	due   bool
	sweep bool
	sinks map[int]bool
	// took is how long the full look took, waiting for room left out.
	took time.Duration
}

// restart forgets what a new session can't rely on.
func (w *watch) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all, w.dueAt = true, time.Now()
	w.mark, w.rest = mark{}, nil
	w.quietUntil = time.Time{}
}

func (w *watch) want(sink int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sink < 0 {
		// Something was missed that no look from a mark may find.
		w.all = true
		return
	}
	if w.sinks == nil {
		w.sinks = map[int]bool{}
	}
	w.sinks[sink] = true
}

// due notes a time, and says whether it is earlier than the one that was known.
func (w *watch) due(at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dueAt.IsZero() && !at.Before(w.dueAt) {
		return false
	}
	w.dueAt = at
	return true
}

// plan takes the requests and says what is to be done now.
func (w *watch) plan(now time.Time) task {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := task{sweep: !now.Before(w.sweepAt), sinks: w.sinks}
	t.full = w.all || t.sweep && !w.conditional
	switch {
	case t.full:
	case w.rest != nil:
		t.pass = true
	case !now.Before(w.lookAt):
		t.full = w.cheap
		t.pass = !t.full
	}
	// With every look: of a deferred row that the stream did not bring no timer knows.
	t.due = t.full || t.pass || len(t.sinks) > 0 || !w.dueAt.IsZero() && !now.Before(w.dueAt)
	w.all, w.sinks = false, nil
	if t.due {
		w.dueAt = time.Time{}
	}
	return t
}

// undone gives the requests of a failed visit back.
func (w *watch) undone(t task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = w.all || t.full
	if t.due {
		w.dueAt = time.Now()
	}
	for sink := range t.sinks {
		if w.sinks == nil {
			w.sinks = map[int]bool{}
		}
		w.sinks[sink] = true
	}
}

// done sets the next regular times.
func (w *watch) done(t task, now time.Time, interval time.Duration) {
	if t.full {
		w.cheap = t.took < cheapLook && w.rest == nil
	}
	if t.full || t.pass {
		w.lookAt = now.Add(interval)
		if wait := lookShare * t.took; w.conditional && wait > interval {
			w.lookAt = now.Add(wait)
		}
	}
}

// next is when something is due; requests that came meanwhile are due at once.
func (w *watch) next(now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all || len(w.sinks) > 0 || w.rest != nil {
		return now
	}
	next := w.lookAt
	for _, at := range []time.Time{w.sweepAt, w.dueAt} {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}
