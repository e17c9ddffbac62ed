package poller

import (
	"sync"
	"time"

	"pgrelay/relay"
)

// watch is what the poller knows of one table. Requests come from any goroutine; the rest is the poller's alone.
type watch struct {
	table *relay.Table
	// blind takes its place while what the user's SQL says of a row is an error.
	blind      *relay.Table
	blindUntil time.Time
	// conditional: each regular look is a full one, of rows that may have to wait once more, and the sweep needs none.
	conditional bool

	mu    sync.Mutex
	all   bool         // a full look is wanted
	sinks map[int]bool // a look for single destinations is wanted
	dueAt time.Time    // a row is due then; zero: none is known of

	lookAt  time.Time // the next regular look
	sweepAt time.Time // the next sweep, and full look but of a conditional table
	cheap   bool      // the last full look was, so that it takes the place of the pass
	mark    mark
	// Looks that were broken off, and go on at the next visit: the regular one, and those for single destinations.
	rest  *look
	rests map[int]*look

	quietUntil time.Time
	quiet      time.Duration
	failing    string
	keeping    string // why rows past their retention stay
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
	sinks map[int]*look
	// took is how long the full look took, waiting for room left out.
	took time.Duration
}

// restart forgets what a new session can't rely on.
func (w *watch) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all, w.dueAt = true, time.Now()
	w.mark, w.rest, w.rests = mark{}, nil, nil
	w.quietUntil = time.Time{}
}

// looks is the table whose statements find rows.
func (w *watch) looks() *relay.Table {
	if time.Now().Before(w.blindUntil) {
		return w.blind
	}
	return w.table
}

// blinded says that a look failed for what is in a row, and that the next ones can do without looking there.
func (w *watch) blinded(err error, now time.Time) bool {
	if w.blind == nil || now.Before(w.blindUntil) || !relay.RowFault(err) {
		return false
	}
	w.blindUntil = now.Add(blindFor)
	return true
}

// blindFor is how long looks offer every pending row, so that the claims find the one at fault and tell of it, until it is tried whether they
// work again.
const blindFor = 5 * time.Second

func (w *watch) want(sink int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sink < 0 {
		// Something was missed that no look from a mark may find.
		w.all = true
		return
	}
	w.sinks = with(w.sinks, sink, true)
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
	t := task{sweep: !now.Before(w.sweepAt), sinks: w.rests}
	w.rests = nil
	for sink := range w.sinks {
		// One that is under way goes on; what it has passed already is looked at once more after it.
		if t.sinks[sink] == nil {
			t.sinks = with(t.sinks, sink, &look{})
			delete(w.sinks, sink)
		}
	}
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
	w.all = false
	if t.due {
		w.dueAt = time.Time{}
	}
	return t
}

// with sets a value of a map that may be nil.
func with[V any](m map[int]V, key int, value V) map[int]V {
	if m == nil {
		m = map[int]V{}
	}
	m[key] = value
	return m
}

// undone gives the requests of a failed visit back.
func (w *watch) undone(t task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = w.all || t.full
	if t.due {
		w.dueAt = time.Now()
	}
	w.rests = t.sinks
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
	if w.all || len(w.sinks) > 0 || w.rest != nil || len(w.rests) > 0 {
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
