package relay

import (
	"slices"
	"sync"
)

// flights are the rows in flight here: claimed and not yet known to be stamped, released or refused.
// An id leaves only then; until then it is taken out of every claim, which is what keeps a row
// from being claimed twice. Safe for concurrent use.
type flights struct {
	mu    sync.Mutex
	rows  map[rowKey]*flight
	lines map[lineKey]int
	bytes int64
	idle  chan struct{} // closed while nothing is in flight
	freed func()        // called without the lock when rows have left
}

type flight struct {
	*delivery
	again bool // asked for by the poller while in flight: to be asked for once more
}

func newFlights(freed func()) *flights {
	idle := make(chan struct{})
	close(idle)
	return &flights{rows: map[rowKey]*flight{}, lines: map[lineKey]int{}, idle: idle, freed: freed}
}

func (f *flights) add(ds []*delivery) {
	if len(ds) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.rows) == 0 {
		f.idle = make(chan struct{})
	}
	for _, d := range ds {
		f.rows[rowKey{d.table.Name, d.row.ID}] = &flight{delivery: d}
		f.bytes += d.size
		if d.line != "" {
			f.lines[d.lineKey()]++
		}
	}
}

// remove takes rows out and returns the wants of those that were asked for meanwhile.
func (f *flights) remove(ds []*delivery) (again []*delivery) {
	if len(ds) == 0 {
		return nil
	}
	f.mu.Lock()
	for _, d := range ds {
		key := rowKey{d.table.Name, d.row.ID}
		old, ok := f.rows[key]
		if !ok || old.delivery != d {
			continue
		}
		delete(f.rows, key)
		f.bytes -= d.size
		if d.line != "" {
			if f.lines[d.lineKey()]--; f.lines[d.lineKey()] <= 0 {
				delete(f.lines, d.lineKey())
			}
		}
		if old.again {
			again = append(again, d)
		}
	}
	if len(f.rows) == 0 {
		select {
		case <-f.idle:
		default:
			close(f.idle)
		}
	}
	f.mu.Unlock()
	f.freed()
	return again
}

// split parts wants into those that may be claimed and drops those in flight, noting them as asked for
// again where the poller asks: it may have seen a republish that the stamp's reply has yet to overtake.
func (f *flights) split(t *Table, wants []want) []want {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(wants, func(w want) bool {
		fl, ok := f.rows[rowKey{t.Name, w.id}]
		if !ok {
			return false
		}
		fl.again = fl.again || w.source == sourcePoller
		return true
	})
}

// hasLine says whether a row of the line is in flight, so that its stamp will wake the line.
func (f *flights) hasLine(k lineKey) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines[k] > 0
}

func (f *flights) inFlight() (rows int, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.rows), f.bytes
}

// held are rows in flight with the claims that hold them.
type held struct {
	claims, epochs []int64
	ids            []string
}

// held are a table's.
func (f *flights) held(t *Table) held {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := held{claims: []int64{}, epochs: []int64{}, ids: []string{}}
	for key, fl := range f.rows {
		if key.table == t.Name {
			h.claims, h.epochs, h.ids = append(h.claims, fl.claim), append(h.epochs, fl.epoch), append(h.ids, key.id)
		}
	}
	return h
}

// landed is closed once nothing is in flight.
func (f *flights) landed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle
}
