package relay

import "sync"

// hold remembers what a destination had no room for: ids up to a bound, and which outboxes have more of its rows than that.
// When the destination has room again the ids are asked for and the poller looks for the rest. Safe for concurrent use.
type hold struct {
	bound int

	mu     sync.Mutex
	ids    []rowOf
	missed map[*outbox]bool
}

func newHold(bound int) *hold { return &hold{bound: bound, missed: map[*outbox]bool{}} }

// keep holds an id back.
func (h *hold) keep(o *outbox, w want) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ids) >= h.bound {
		h.missed[o] = true
		return
	}
	h.ids = append(h.ids, rowOf{o, w})
}

// miss notes that rows of the outbox were passed over.
func (h *hold) miss(o *outbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missed[o] = true
}

// full says whether nothing more can be held back, so that looking for more is of no use.
func (h *hold) full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ids) >= h.bound
}

// take empties it.
func (h *hold) take() (ids []rowOf, missed []*outbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for o := range h.missed {
		missed = append(missed, o)
	}
	ids, h.ids = h.ids, nil
	clear(h.missed)
	return ids, missed
}
