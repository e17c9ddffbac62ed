package chaos_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// lineOf names the rows that keep an order: those of one key of one outbox that go to the FIFO queue, or by mail.
type lineOf struct {
	outbox, key string
	mail        bool
}

// line is that of the row, if it has one.
func (s *row) line() (l lineOf, ok bool) {
	return lineOf{s.outbox, s.key, s.mails()}, s.key != "" && (s.mails() || strings.HasPrefix(s.topic, "f"))
}

// lines are the rows of each.
func (h *history) lines() map[lineOf][]*row {
	lines := map[lineOf][]*row{}
	for _, r := range h.rows {
		if l, ok := r.line(); ok {
			lines[l] = append(lines[l], r)
		}
	}
	return lines
}

// disorder are rows that the FIFO queue or the mail server got before an earlier one of their key (G3). The first delivery of each counts.
func (h *history) disorder() (bad []violation) {
	place := map[string]int{} // of each event's first arrival
	for i, event := range h.arrived {
		if _, ok := place[event]; !ok {
			place[event] = i
		}
	}
	for _, line := range h.lines() {
		line = slices.DeleteFunc(line, func(r *row) bool { _, arrived := place[r.event]; return !arrived })
		slices.SortFunc(line, func(a, b *row) int { return cmp.Compare(place[a.event], place[b.event]) })
		bad = append(bad, overtaken(line)...)
	}
	return bad
}

// overtaken takes the rows of a line as they arrived, and finds those that came behind a later one without leave.
func overtaken(line []*row) (bad []violation) {
	var most int64
	for i, s := range line {
		if s.id > most {
			most = s.id
			continue
		}
		for _, r := range line[:i] {
			if r.id > s.id && !s.lets(r) {
				bad = append(bad, violation{"G3 order", fmt.Sprintf("of %q, %v arrived before %v", s.key, r.rowID, s.rowID), []rowID{s.rowID, r.rowID}})
				break
			}
		}
	}
	return bad
}

// lets says whether a row may go before s although it is later: s was not due when that was claimed, or was dead and does not hold its key.
func (s *row) lets(r *row) bool {
	claim := r.sends[0].claim
	if claim == nil {
		return true // a crash of the server took its claim back: nobody knows when it was made
	}
	if s.due != nil && claim.began.Before(*s.due) {
		return true
	}
	for _, e := range s.log {
		if !s.holds() && e.settled() && e.seq < claim.seq && e.at.Before(s.sends[0].at) {
			return true
		}
	}
	return false
}

// crowdedBatches are calls with two messages of a key (G3).
func (h *history) crowdedBatches() (bad []violation) {
	type place struct {
		call int
		line lineOf
	}
	seen := map[place]*send{}
	for _, s := range h.sends {
		r := h.byEvent[s.event]
		if s.queue != fifoQueue || r == nil || r.key == "" {
			continue
		}
		p := place{s.call, lineOf{outbox: r.outbox, key: r.key}}
		if other := seen[p]; other != nil {
			bad = append(bad, violation{"G3 batch", fmt.Sprintf("call %d of %s has two messages of %q", s.call, s.process, r.key), []rowID{r.rowID, h.byEvent[other.event].rowID}})
		}
		seen[p] = s
	}
	return bad
}
