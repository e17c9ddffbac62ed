package protocol

// violation names the invariant that a state breaks.
type violation uint8

const (
	none violation = iota
	rolledBackSent
	lost
	changeLost
	repeated
	disordered
	twoSenders
	deposedStamp
	neither
	deadThoughDelivered
	endless
)

func (v violation) String() string {
	return [...]string{
		none:                "none",
		rolledBackSent:      "G1: a row that was never committed is published",
		lost:                "G1: a committed row ends neither published nor dead",
		changeLost:          "G1: a row is published, but not as its owner wrote it last",
		repeated:            "G2: a message is repeated without one of the reasons",
		disordered:          "G3: a row is sent before an earlier unsettled one of its key",
		twoSenders:          "G7: an instance sends without the lock",
		deposedStamp:        "G7: a stamp counts although another instance has led",
		neither:             "a row in flight is neither claimed nor settled",
		deadThoughDelivered: "a row ends dead although its leader knows it delivered",
		endless:             "a run without faults never ends",
	}[v]
}

// judgeSend looks at a call as it leaves.
func (m *model) judgeSend(t *state, i int, d *delivery) {
	if t.lock != uint8(i+1) {
		t.broken = twoSenders
	}
	if !m.keyed {
		return
	}
	for r := range int(d.row) - 1 {
		row, rec := t.db.rows[r], t.record[r]
		byItself := t.inst[i].items.any(func(x *delivery) bool { return int(x.row) == r+1 && x.phase == delivered })
		again := rec.setBack || rec.touched && rec.accepted > 0
		if row.life == committed && row.mark == pending && !byItself && !again {
			t.broken = disordered
		}
	}
}

// accept is the destination taking a message.
func (m *model) accept(t *state, r int, version uint8) {
	rec := &t.record[r]
	if l := t.db.rows[r].life; l != committed && l != flushed {
		t.broken = rolledBackSent
	}
	if rec.credit == 0 {
		t.broken = repeated
		return
	}
	rec.credit--
	rec.accepted = max(rec.accepted, version+1)
}

// judge looks at a state by itself.
func (m *model) judge(s *state) violation {
	if s.broken != none {
		return s.broken
	}
	if s.lock == 0 {
		return none
	}
	i := int(s.lock) - 1
	missing := s.inst[i].items.any(func(d *delivery) bool {
		return !d.deposed && !d.lostHold && !d.phase.doubt() && !d.stamp.ran() && !s.db.holds(d, true)
	})
	if missing {
		return neither
	}
	return none
}

// judgeEnd looks at a state in which nothing is left to do.
func (m *model) judgeEnd(s *state) violation {
	for r := range s.db.rows {
		row, rec := s.db.rows[r], s.record[r]
		if row.life == committed && row.mark == pending {
			return lost
		}
		if row.mark == published && rec.accepted < rec.owed+1 {
			return changeLost
		}
	}
	return none
}
