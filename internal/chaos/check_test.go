package chaos_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tale builds a history by hand: each step is a second later than the one before.
type tale struct {
	h   *history
	now time.Time
	in  map[int64]string // outboxes
}

func newTale() *tale {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := &history{rows: map[rowID]*row{}, lives: map[string]life{"A1": {began: now}, "B1": {began: now}}, claims: map[sendKey]bool{}, ledger: map[string]bool{}}
	return &tale{h: h, now: now, in: map[int64]string{}}
}

func (s *tale) tick() time.Time {
	s.now = s.now.Add(time.Second)
	return s.now
}

func (s *tale) note(what, process string, id int64, version int, pending bool, epoch int64) {
	s.log(entry{what: what, process: process, row: rowID{s.in[id], id}, epoch: epoch, version: version, pending: pending})
}

func (s *tale) log(e entry) {
	e.at = s.tick()
	e.seq, e.began = int64(len(s.h.log)), e.at
	s.h.log = append(s.h.log, e)
}

func (s *tale) row(id int64, change ...func(*row)) {
	r := &row{rowID: rowID{ownTable, id}, event: event(id), key: "k", topic: "f.order", published: true}
	for _, c := range change {
		c(r)
	}
	s.h.rows[r.rowID], s.in[id] = r, r.outbox
	s.note("insert", "", id, 1, true, 0)
}

func event(id int64) string { return string(rune('a' + id)) }

func (s *tale) lead(process string, epoch int64)      { s.note("lead", process, 0, 0, false, epoch) }
func (s *tale) claim(process string, id, epoch int64) { s.note("claim", process, id, 0, false, epoch) }
func (s *tale) stamp(process string, id int64, version int) {
	s.note("update", process, id, version, false, 0)
}

func (s *tale) send(process string, id int64, version int, change ...func(*send)) {
	one := &send{call: len(s.h.sends), at: s.tick(), process: process, queue: fifoQueue, event: event(id), version: version, stored: true, told: true}
	one.answered = one.at
	for _, c := range change {
		c(one)
	}
	if one.stored {
		s.h.arrived = append(s.h.arrived, one.event)
	}
	s.h.sends = append(s.h.sends, one)
}

// sent has a row that goes at most once be claimed for that, and sent.
func (s *tale) sent(id int64) { s.h.claims[sendKey{event(id), "queue"}] = true }

// goes takes a row through claim, publish and stamp.
func (s *tale) goes(process string, id, epoch int64, version int) {
	s.claim(process, id, epoch)
	s.send(process, id, version)
	s.stamp(process, id, version)
}

func (s *tale) checks() (found []string) {
	s.h.link()
	for _, v := range s.h.check() {
		found = append(found, v.check)
	}
	return found
}

func lost(s *send)   { s.told = false }
func gone(s *send)   { s.stored, s.told = false, false }
func once(r *row)    { r.outbox, r.recipients = joinedTable, []string{"queue"} }
func pending(r *row) { r.published = false }
func nowhere(r *row) { r.topic = "x.nobody" }

// tales are histories and the checks that each breaks.
type tales map[string]struct {
	tell func(s *tale)
	want []string
}

func TestChecksFindWhatIsWrongAndNothingElse(t *testing.T) {
	tales{
		"all is well": {tell: func(s *tale) { s.row(1); s.row(2); s.goes("A1", 1, 1, 1); s.goes("A1", 2, 1, 1) }},
		"a row of a transaction that was rolled back is sent": {func(s *tale) { s.send("A1", 1, 1) }, []string{"G1 committed"}},
		"a row is still pending":                              {func(s *tale) { s.row(1, pending) }, []string{"G1 settled"}},
		"a row is marked and was never sent":                  {func(s *tale) { s.row(1); s.claim("A1", 1, 1); s.stamp("A1", 1, 1) }, []string{"G1 delivered"}},
		"a row is marked and its entry was omitted": {func(s *tale) {
			s.row(1)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1, gone)
			s.stamp("A1", 1, 1)
		}, []string{"G1 delivered"}},
		"a change in flight is stamped over": {func(s *tale) {
			s.row(1)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1)
			s.note("update", "", 1, 2, true, 0)
			s.stamp("A1", 1, 2)
		}, []string{"G1 delivered"}},
		"a change in flight is sent": {tell: func(s *tale) {
			s.row(1)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1)
			s.note("update", "", 1, 2, true, 0)
			s.goes("A1", 1, 1, 2)
		}},
		"a row that was set back is sent again": {tell: func(s *tale) {
			s.row(1)
			s.goes("A1", 1, 1, 1)
			s.note("update", "", 1, 1, true, 0)
			s.goes("A1", 1, 1, 1)
		}},
		"a row that was set back is not sent again": {func(s *tale) {
			s.row(1)
			s.goes("A1", 1, 1, 1)
			s.note("update", "", 1, 1, true, 0)
			s.stamp("A1", 1, 1)
		}, []string{"G1 delivered"}},
		"a row is sent twice for no reason": {func(s *tale) {
			s.row(1)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1)
			s.send("A1", 1, 1)
			s.stamp("A1", 1, 1)
		}, []string{"G2 repeat"}},
		"a row is sent twice as a reply was lost": {tell: func(s *tale) { s.row(1); s.claim("A1", 1, 1); s.send("A1", 1, 1, lost); s.goes("A1", 1, 1, 1) }},
		"a row that was stamped is sent again": {func(s *tale) {
			s.row(1)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1, lost)
			s.stamp("A1", 1, 1)
			s.goes("A1", 1, 1, 1)
		}, []string{"G2 repeat"}},
		"a row is sent again by the next leader": {tell: func(s *tale) {
			s.row(1)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1)
			s.lead("B1", 2)
			s.goes("B1", 1, 2, 1)
		}},
		"a row is sent again when a process had died": {tell: func(s *tale) {
			s.row(1)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1)
			s.h.lives["A1"] = life{ended: s.tick(), unfinished: true}
			s.lead("A2", 2)
			s.goes("A2", 1, 2, 1)
		}},
		"a stamp comes when another one has claimed": {func(s *tale) {
			s.row(1)
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1)
			s.lead("B1", 2)
			s.claim("B1", 1, 2)
			s.stamp("A1", 1, 1)
			s.send("B1", 1, 1)
		}, []string{"G7 fence"}},
		"a claim comes when another one leads": {func(s *tale) { s.row(1); s.lead("B1", 2); s.goes("A1", 1, 1, 1) }, []string{"G7 lead"}},
		"a row overtakes":                      {func(s *tale) { s.row(1); s.row(2); s.goes("A1", 2, 1, 1); s.goes("A1", 1, 1, 1) }, []string{"G3 order"}},
		"a row overtakes one that was not due": {tell: func(s *tale) {
			s.row(1, func(r *row) { due := s.now.Add(5500 * ms); r.due = &due })
			s.row(2)
			s.goes("A1", 2, 1, 1)
			s.goes("A1", 1, 1, 1)
		}},
		"a row overtakes one that was due": {func(s *tale) {
			s.row(1, func(r *row) { due := s.now.Add(1500 * ms); r.due = &due })
			s.row(2)
			s.goes("A1", 2, 1, 1)
			s.goes("A1", 1, 1, 1)
		}, []string{"G3 order"}},
		"a row is sent before its time": {func(s *tale) {
			s.row(1, func(r *row) { due := s.now.Add(time.Minute); r.due = &due })
			s.goes("A1", 1, 1, 1)
		}, []string{"due"}},
		"a row that goes at most once is sent twice": {func(s *tale) {
			s.row(1, once)
			s.sent(1)
			s.goes("A1", 1, 1, 1)
			s.note("update", "", 1, 1, true, 0)
			s.goes("A1", 1, 1, 1)
		}, []string{"G11 once"}},
		"a row that goes at most once is set back and not sent again": {tell: func(s *tale) {
			s.row(1, once)
			s.sent(1)
			s.goes("A1", 1, 1, 1)
			s.note("update", "", 1, 1, true, 0)
			s.stamp("A1", 1, 1)
		}},
		"a row that goes at most once is marked and was never sent": {func(s *tale) { s.row(1, once); s.sent(1); s.claim("A1", 1, 1); s.stamp("A1", 1, 1) }, []string{"G1 recipient"}},
		"a row that goes at most once is sent without a claim":      {func(s *tale) { s.row(1, once); s.goes("A1", 1, 1, 1) }, []string{"G1 recipient"}},
		"two rows of a key are in one call": {func(s *tale) {
			s.row(1)
			s.row(2)
			s.claim("A1", 1, 1)
			s.claim("A1", 2, 1)
			same := func(one *send) { one.call = 7 }
			s.send("A1", 1, 1, same)
			s.send("A1", 2, 1, same)
		}, []string{"G3 batch"}},
		"a row dies of a refusal for now": {func(s *tale) {
			s.row(1, func(r *row) { r.dead, r.reason = true, "refused_for_now" })
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1, gone)
			s.stamp("A1", 1, 1)
		}, []string{"G4 death"}},
		"a row dies of a refusal for good": {tell: func(s *tale) {
			s.row(1, func(r *row) { r.dead, r.reason = true, "refused_message" })
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1, gone, func(one *send) { one.rejected = true })
			s.stamp("A1", 1, 1)
		}},
		"a row dies of a refusal for good and nothing says so": {func(s *tale) {
			s.row(1, func(r *row) { r.dead = true })
			s.claim("A1", 1, 1)
			s.send("A1", 1, 1, gone, func(one *send) { one.rejected = true })
			s.stamp("A1", 1, 1)
		}, []string{"G1 reason"}},
		"a row without a route dies": {tell: func(s *tale) {
			s.row(1, nowhere, func(r *row) { r.dead, r.reason = true, "no_route" })
			s.claim("A1", 1, 1)
			s.stamp("A1", 1, 1)
		}},
		"a row without a route dies and nothing says so": {func(s *tale) {
			s.row(1, nowhere, func(r *row) { r.dead = true })
			s.claim("A1", 1, 1)
			s.stamp("A1", 1, 1)
		}, []string{"G1 reason"}},
		"a row without a route is sent": {func(s *tale) { s.row(1, nowhere); s.goes("A1", 1, 1, 1) }, []string{"G9 route"}},
	}.check(t)
}

func (all tales) check(t *testing.T) {
	t.Parallel()
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTale()
			s.lead("A1", 1)
			c.tell(s)
			require.Equal(t, c.want, s.checks())
		})
	}
}
