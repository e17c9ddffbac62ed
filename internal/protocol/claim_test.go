package protocol

// lookSteps is how ids reach the queue: stream and poller.
func (m *model) lookSteps(s *state, i int, out emit) {
	a, who := &s.inst[i], int8(i)
	if a.lead != leading {
		return
	}
	known := a.queue | a.behind | a.items.rows() | a.claim.want
	for r := range m.rows {
		if s.slot.has(r) && s.slotBy == uint8(i+1) {
			t := *s
			t.slot &^= one(r)
			t.inst[i].queue |= one(r)
			out(step{"stream brings", who, int8(r)}, 50, t)
		}
		if s.db.rows[r].failure == due && s.db.rows[r].mark == pending && !known.has(r) {
			t := *s
			t.inst[i].queue |= one(r)
			out(step{"poller brings the due retry", who, int8(r)}, 41, t)
		}
	}
	everyLookIsFull := !m.stream && !m.lowWater && s.visiblePending()&^known != 0
	if a.look || s.byHand || everyLookIsFull {
		t := *s
		t.inst[i].queue |= s.visiblePending()
		t.inst[i].look, t.byHand = s.writers() != 0, s.byHand && s.visiblePending()&a.items.rows() != 0
		out(step{"full look", who, -1}, 42, t)
	}
	if a.behind != 0 && a.items == (deliveries{}) && m.has(behindIsAskedAgain) {
		t := *s
		t.inst[i].queue |= a.behind
		t.inst[i].behind = 0
		out(step{"asks again for what is behind its key", who, -1}, 61, t)
	}
	if m.lowWater {
		m.pass(s, i, known, out)
	}
}

func (s *state) visiblePending() set {
	var found set
	for r := range s.db.rows {
		if row := s.db.rows[r]; row.life == committed && row.mark == pending && row.failure == noFailure {
			found |= one(r)
		}
	}
	return found
}

// writers are the transactions that a snapshot taken now shows as running.
func (s *state) writers() set {
	var w set
	for r := range s.db.rows {
		if l := s.db.rows[r].life; l == open || l == flushed {
			w |= one(r)
		}
	}
	return w
}

// pass is the poller's regular look from its low-water mark.
func (m *model) pass(s *state, i int, known set, out emit) {
	low := s.inst[i].low
	above := ^set(0) << low.mark
	found := s.visiblePending() & above
	writers := s.writers()
	var highest uint8
	for r := range s.db.rows {
		if found.has(r) {
			highest = uint8(r + 1)
		}
	}
	switch {
	case low.next == 0 && highest > low.mark:
		low.next, low.writers = highest, writers
	case low.next > 0 && low.writers&writers == 0:
		low = lowWater{mark: low.next}
	}
	if !m.has(lowWaterWaitsForWriters) && highest > low.mark {
		low = lowWater{mark: highest}
	}
	t := *s
	t.inst[i].queue |= found &^ known
	t.inst[i].low = low
	if t != *s {
		out(step{"pass from the low-water mark", int8(i), -1}, 43, t)
	}
}

// claimSteps is the claimer: one statement at a time, on the leader session.
func (m *model) claimSteps(s *state, i int, out emit) {
	a, who := &s.inst[i], int8(i)
	switch {
	case a.claim.stage == idle && a.lead == leading && a.queue != 0:
		t := *s
		b := &t.inst[i]
		b.claim.want, b.queue = b.queue, 0
		if m.has(claimLeavesOutInFlight) {
			b.claim.want &^= b.items.rows()
		} else if b.items[0].row != 0 && b.items[1].row != 0 {
			b.claim.want = 0 // no room in the model
		}
		if b.claim.want != 0 {
			b.claim.stage = sent
		}
		out(step{"sends a claim for what is queued and not in flight", who, -1}, 70, t)
	case a.claim.stage == sent && s.lock == uint8(i+1):
		if id, ok := s.freshClaim(); ok {
			t := *s
			m.runClaim(&t, i, id)
			out(step{"claim runs and commits", who, -1}, 21, t)
		}
	case a.claim.stage == answered:
		t := *s
		m.claimReply(&t, i)
		out(step{"claim's reply arrives", who, -1}, 20, t)
	}
}

// freshClaim is the smallest id that nothing refers to, which keeps states few, or one that a crash gave back.
func (s *state) freshClaim() (int, bool) {
	var used set
	mark := func(d *delivery) { used |= one(int(d.claim)) }
	for i := range s.inst {
		s.inst[i].items.each(mark)
		s.late[i].each(mark)
		if c := s.inst[i].claim; c.stage == answered {
			used |= one(int(c.id))
		}
	}
	for c := range s.db.claims {
		if s.db.claims[c].by != 0 {
			used |= one(c)
		} else if s.db.reused.has(c) {
			return c, true
		}
	}
	for c := range s.db.claims {
		if !used.has(c) {
			return c, true
		}
	}
	return 0, false
}

func (m *model) runClaim(t *state, i, id int) {
	c := &t.inst[i].claim
	c.stage, c.id = answered, uint8(id)
	var left set // earlier rows of the key that this claim doesn't take
	for r := range t.db.rows {
		row := t.db.rows[r]
		unsettled := row.life == committed && row.mark == pending
		wanted := c.want.has(r)
		switch {
		case wanted && row.life == open && !m.has(claimReadsTheTable):
			c.got |= one(r)
		case wanted && row.life == flushed:
			if m.has(claimKeepsNotYetVisible) {
				c.again |= one(r)
			}
		case wanted && unsettled && t.locked.has(r):
			c.again |= one(r)
		case wanted && unsettled && row.failure != waiting && m.keyed && left != 0 && m.has(claimHoldsKey):
			c.behind |= one(r)
		case wanted && unsettled && row.failure != waiting:
			c.got |= one(r)
			c.versions[r] = row.version
		}
		if unsettled && !c.got.has(r) {
			left |= one(r)
		}
	}
	if c.got != 0 {
		t.db.claims[id] = claimRow{by: uint8(i + 1), epoch: t.inst[i].epoch, ids: c.got}
		t.db.reused &^= one(id)
	}
}

func (m *model) claimReply(t *state, i int) {
	a := &t.inst[i]
	c := a.claim
	for r := range t.db.rows {
		if c.got.has(r) {
			a.items.add(delivery{row: uint8(r + 1), claim: c.id, epoch: a.epoch, version: c.versions[r], excused: c.excused.has(r), deposed: c.deposed})
		}
	}
	a.queue |= c.again
	if c.keySettledMeanwhile && m.has(behindSeesSettling) {
		a.queue |= c.behind
	} else {
		a.behind |= c.behind
	}
	a.claim = claimStatement{}
}
