package chaos_test

import (
	"fmt"
	"testing"
)

// recorded says whether the ledger had the row's event when something happened to it: what the same transaction did counts.
func (r *row) recorded(then *entry) (is bool) {
	for _, e := range r.log {
		if e.seq < then.seq || e.began.Equal(then.began) {
			is = is && e.what != "struck" || e.what == "recorded"
		}
	}
	return is
}

// unrecorded are events that were published and are not in the ledger of their outbox, and such as are there and were never delivered.
func (h *history) unrecorded() (bad []violation) {
	for id, r := range h.rows {
		if keeps := r.outbox == bareTable && r.published && !r.dead; keeps && !h.ledger[r.event] {
			bad = append(bad, violation{"ledger", fmt.Sprintf("%v is published and not in the ledger", id), []rowID{id}})
		}
	}
	for event := range h.ledger {
		switch r := h.byEvent[event]; {
		case r == nil:
			bad = append(bad, violation{"ledger", fmt.Sprintf("event %s is in the ledger and not in the table", event), nil})
		case len(r.sends) == 0:
			bad = append(bad, violation{"ledger", fmt.Sprintf("%v is in the ledger and was never delivered", r.rowID), []rowID{r.rowID}})
		}
	}
	return bad
}

// sentThoughRecorded are messages whose event was in the ledger when their row was claimed.
func (h *history) sentThoughRecorded() (bad []violation) {
	for id, r := range h.rows {
		for _, s := range r.sends {
			if s.claim != nil && r.recorded(s.claim) {
				bad = append(bad, violation{"ledger", fmt.Sprintf("%v was sent at %s although it was in the ledger", id, s.at.Format(clock)), []rowID{id}})
			}
		}
	}
	return bad
}

func (s *tale) record(what string, id int64) {
	s.log(entry{what: what, event: event(id)})
	s.h.ledger[event(id)] = what == "recorded"
}

func TestChecksOfTheLedgerFindWhatIsWrongAndNothingElse(t *testing.T) {
	bare := func(r *row) { r.outbox = bareTable }
	setBack := func(s *tale) { s.note("update", "", 1, 2, true, 0) }
	tales{
		"what is delivered is recorded": {tell: func(s *tale) { s.row(1, bare); s.goes("A1", 1, 1, 1); s.record("recorded", 1) }},
		"what is delivered is not":      {func(s *tale) { s.row(1, bare); s.goes("A1", 1, 1, 1) }, []string{"ledger"}},
		"what is recorded was not delivered": {func(s *tale) {
			s.row(1, bare, func(r *row) { r.dead, r.reason, r.refused = true, "refused_message", true })
			s.claim("A1", 1, 1)
			s.stamp("A1", 1, 1)
			s.record("recorded", 1)
		}, []string{"ledger"}},
		"what is recorded was never committed": {func(s *tale) { s.record("recorded", 1) }, []string{"ledger"}},
		"a row that is set back is stamped": {tell: func(s *tale) {
			s.row(1, bare)
			s.goes("A1", 1, 1, 1)
			s.record("recorded", 1)
			setBack(s)
			s.claim("A1", 1, 1)
			s.stamp("A1", 1, 2)
		}},
		"a row that is set back is sent": {func(s *tale) {
			s.row(1, bare)
			s.goes("A1", 1, 1, 1)
			s.record("recorded", 1)
			setBack(s)
			s.goes("A1", 1, 1, 2)
		}, []string{"ledger"}},
		"a row that is struck is sent": {tell: func(s *tale) {
			s.row(1, bare)
			s.goes("A1", 1, 1, 1)
			s.record("recorded", 1)
			s.record("struck", 1)
			setBack(s)
			s.goes("A1", 1, 1, 2)
			s.record("recorded", 1)
		}},
		"a row that is struck is not sent": {func(s *tale) {
			s.row(1, bare)
			s.goes("A1", 1, 1, 1)
			s.record("recorded", 1)
			setBack(s)
			s.record("struck", 1)
			s.h.log[len(s.h.log)-1].began = s.h.log[len(s.h.log)-2].began // one transaction
			s.claim("A1", 1, 1)
			s.stamp("A1", 1, 2)
			s.record("recorded", 1)
		}, []string{"G1 delivered"}},
	}.check(t)
}
