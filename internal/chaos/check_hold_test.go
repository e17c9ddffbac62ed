package chaos_test

import (
	"fmt"
	"testing"
	"time"
)

// holds says that the row, once it is dead, holds its key until a person decides.
func (r *row) holds() bool { return r.topic == "f.held" }

// discarded says that a person has decided on the row's death, if it is dead still.
func (r *row) discarded() bool {
	last := ""
	for _, e := range r.log {
		if e.what == "died" || e.what == "let go" {
			last = e.what
		}
	}
	return last == "let go"
}

// passed are rows that went although a dead one before them held their key (G3). Where a crash of the server took back that it was let
// go, with the claim of what went then, the log can't tell.
func (h *history) passed() (bad []violation) {
	for _, line := range h.lines() {
		for _, s := range line {
			for _, held := range s.held() {
				for _, r := range line {
					for _, one := range r.sends {
						if r.id > s.id && one.at.After(held.from) && one.at.Before(held.until) &&
							!h.happened(one.at, one.at.Add(2*time.Second), "", "backend killed", "server crashed") {
							bad = append(bad, violation{"G3 hold", fmt.Sprintf("of %q, %v was sent while %v was dead and held it", s.key, r.rowID, s.rowID), []rowID{s.rowID, r.rowID}})
						}
					}
				}
			}
		}
	}
	return bad
}

type span struct{ from, until time.Time }

// held are the times during which the row was dead and so had to hold its key.
func (r *row) held() (spans []span) {
	if !r.holds() {
		return nil
	}
	for _, e := range r.log {
		switch {
		case e.what == "died":
			spans = append(spans, span{e.at, e.at.Add(24 * time.Hour)})
		case e.what == "let go" && len(spans) > 0:
			spans[len(spans)-1].until = e.at
		}
	}
	return spans
}

func holding(r *row) { r.topic = "f.held" }
func buried(r *row)  { r.published, r.dead = false, true }

// dies takes a row through claim, refusal and death. It holds its key.
func (s *tale) dies(process string, id, epoch int64) {
	s.claim(process, id, epoch)
	s.send(process, id, 1, rejected)
	s.stamp(process, id, 1)
	s.note("died", process, id, 0, false, 0)
}

func (s *tale) letsGo(id int64) { s.note("let go", "", id, 0, false, 0) }

func TestChecksOfHeldKeysFindWhatIsWrongAndNothingElse(t *testing.T) {
	retried := func(s *tale) { s.letsGo(1); s.note("update", "", 1, 1, true, 0); s.goes("A1", 1, 1, 1) }
	crash := func(s *tale) { s.h.faults = append(s.h.faults, faultOn("server crashed", "server", s.now, s.tick())) }
	tales{
		"a dead row holds its key until it is retried": {tell: func(s *tale) { s.row(1, holding); s.row(2); s.dies("A1", 1, 1); retried(s); s.goes("A1", 2, 1, 1) }},
		"a dead row holds its key until it is discarded": {tell: func(s *tale) {
			s.row(1, holding, buried)
			s.row(2)
			s.dies("A1", 1, 1)
			s.letsGo(1)
			s.goes("A1", 2, 1, 1)
		}},
		"a row of another key goes": {tell: func(s *tale) {
			s.row(1, holding)
			s.row(2, func(r *row) { r.key = "l" })
			s.dies("A1", 1, 1)
			s.goes("A1", 2, 1, 1)
			retried(s)
		}},
		"a row passes one that is dead": {func(s *tale) {
			s.row(1, holding, buried)
			s.row(2)
			s.dies("A1", 1, 1)
			s.goes("A1", 2, 1, 1)
			s.letsGo(1)
		}, []string{"G3 hold"}},
		"a row passes one that is retried later": {func(s *tale) { s.row(1, holding); s.row(2); s.dies("A1", 1, 1); s.goes("A1", 2, 1, 1); retried(s) }, []string{"G3 order", "G3 hold"}},
		"a row passes one that does not hold its key": {tell: func(s *tale) {
			s.row(1)
			s.row(2)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1, rejected)
			s.stamp("A1", 1, 1)
			s.goes("A1", 2, 1, 1)
			retried(s)
		}},
		"a crash takes back that a row was let go": {tell: func(s *tale) {
			s.row(1, holding, buried)
			s.row(2)
			s.dies("A1", 1, 1)
			s.send("A1", 2, 1)
			crash(s)
			s.letsGo(1)
			s.goes("A1", 2, 1, 1)
		}},
		"a row is dead without a reason and nobody has discarded it": {func(s *tale) { s.row(1, holding, buried); s.dies("A1", 1, 1) }, []string{"G1 reason"}},
	}.check(t)
}
