package protocol

// leadSteps is an instance and the leader lock.
func (m *model) leadSteps(s *state, i int, out emit) {
	a, who := &s.inst[i], int8(i)
	holds := s.lock == uint8(i+1)
	switch {
	case a.lead == standby && s.lock == 0:
		t := *s
		m.takeLock(&t, i)
		out(step{"takes the lock and an epoch", who, -1}, 30, t)
	case a.lead == taken && (holds || !m.has(releaseUnderLock)):
		t := *s
		m.release(&t, i)
		out(step{"releases every claim that it doesn't hold", who, -1}, 31, t)
		if !m.has(releaseFirst) {
			t := *s
			t.inst[i].lead, t.inst[i].look = leading, true
			out(step{"leads without releasing", who, -1}, optional, t)
		}
	case a.lead == leading && holds && a.claim.stage == idle && m.orphans(&s.db, a, i):
		t := *s
		m.releaseFrom(&t.db, &t.inst[i], i)
		out(step{"sweeps claims that it doesn't hold", who, -1}, 60, t)
	}
	if a.lead == leading && m.stream && s.slotBy == 0 {
		t := *s
		t.slotBy = uint8(i + 1)
		t.inst[i].look = t.inst[i].look || m.has(lookAfterReconnect)
		out(step{"starts the stream", who, -1}, 32, t)
	}
	if a.lead != standby {
		m.sessionSteps(s, i, out)
	}
	fault(s, func(b *budget) *uint8 { return &b.crash }, step{"crashes (kill -9)", who, -1}, out, func(t *state) { m.crash(t, i) })
}

// sessionSteps is the leader session of an instance that believes to lead.
func (m *model) sessionSteps(s *state, i int, out emit) {
	a, who := &s.inst[i], int8(i)
	if s.lock != uint8(i+1) {
		t := *s
		m.loseLead(&t, i)
		out(step{"notices that its session is gone", who, -1}, 11, t)
		return
	}
	if a.fresh {
		fault(s, func(b *budget) *uint8 { return &b.freeze }, step{"freezes: its last good ping is over 3 s old", who, -1}, out,
			func(t *state) { t.inst[i].fresh = false })
	} else {
		t := *s
		t.inst[i].fresh = true
		out(step{"pings again", who, -1}, 10, t)
		if s.slotBy == uint8(i+1) {
			t = *s
			t.slotBy = 0
			out(step{"frozen: the server ends its stream", who, -1}, optional, t)
		}
		t = *s
		t.lock = 0
		m.excuseSent(&t, i)
		out(step{"frozen for 5 s and more: the server ends its session, the lock is free", who, -1}, optional, t)
	}
	fault(s, func(b *budget) *uint8 { return &b.cut }, step{"its leader session is cut", who, -1}, out, func(t *state) {
		t.lock = 0
		m.excuseSent(t, i)
		m.loseLead(t, i)
	})
}

func (m *model) takeLock(t *state, i int) {
	a := &t.inst[i]
	if t.db.leader != uint8(i+1) || a.epoch != t.db.epoch {
		a.items.each(func(d *delivery) { d.foreign = true })
	}
	t.lock, t.db.leader = uint8(i+1), uint8(i+1)
	t.db.epoch++
	a.epoch, a.lead, a.fresh = t.db.epoch, taken, true
	if m.has(takeoverIsDurable) {
		m.flush(t)
	}
}

// release is what a new leader does first. From here on it works, and whoever led before is deposed.
func (m *model) release(t *state, i int) {
	a := &t.inst[i]
	m.releaseFrom(&t.db, a, i)
	a.lead, a.look = leading, m.has(lookAfterReconnect)
	if t.lock != uint8(i+1) {
		return
	}
	if m.has(takeoverIsDurable) {
		m.flush(t)
	}
	for j := range t.inst {
		if j != i {
			depose := func(d *delivery) { d.deposed = true }
			t.inst[j].items.each(depose)
			t.late[j].each(depose)
			t.inst[j].claim.deposed = t.inst[j].claim.stage == answered
		}
	}
}

// orphans says whether a release would find something.
func (m *model) orphans(db *database, a *instance, i int) bool {
	next := *db
	m.releaseFrom(&next, a, i)
	return next != *db
}

// releaseFrom takes every id out of the claims that the instance doesn't hold in memory under that very claim.
func (m *model) releaseFrom(db *database, a *instance, i int) {
	for c := range db.claims {
		row := &db.claims[c]
		var held set
		if !m.has(releaseGoesByID) && row.by == uint8(i+1) && a.items.any(func(d *delivery) bool { return int(d.claim) == c }) {
			continue
		}
		a.items.each(func(d *delivery) {
			if int(d.claim) == c && d.epoch == row.epoch && row.by == uint8(i+1) {
				held |= one(int(d.row) - 1)
			}
		})
		if row.ids &= held; row.ids == 0 {
			*row = claimRow{}
		}
	}
}

// loseLead is an instance that knows it doesn't lead any more: what was not sent goes back.
func (m *model) loseLead(t *state, i int) {
	t.endStream(i)
	a := &t.inst[i]
	a.lead, a.fresh, a.look = standby, false, false
	a.queue, a.behind, a.claim, a.low = 0, 0, claimStatement{}, lowWater{}
	a.items.each(func(d *delivery) {
		if d.phase == inLine {
			d.phase = back
		}
	})
}

func (t *state) endStream(i int) {
	if t.slotBy == uint8(i+1) {
		t.slotBy = 0
	}
}

// excuseSent: the instance died or lost its lead between send and stamp.
func (m *model) excuseSent(t *state, i int) {
	t.inst[i].items.each(func(d *delivery) {
		wasSent := d.phase == onWire || d.phase == accepted || d.phase == delivered || d.phase == doubtDelivered
		if wasSent && !d.stamp.took() {
			t.excuse(d)
		}
	})
}

// crash: memory is gone; calls and a stamp that were under way may still arrive.
func (m *model) crash(t *state, i int) {
	m.excuseSent(t, i)
	if t.lock == uint8(i+1) {
		t.lock = 0
	}
	t.leaveStamp(i)
	t.endStream(i)
	t.inst[i].items.each(func(d *delivery) {
		if d.phase == onWire {
			t.leaveCall(d)
		}
	})
	t.inst[i] = instance{}
}

func (m *model) downSteps(s *state, i int, out emit) {
	if i > 0 && !m.standby {
		return
	}
	t := *s
	t.inst[i].alive = true
	out(step{"starts anew", int8(i), -1}, 6, t)
}
