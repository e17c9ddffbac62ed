package protocol

// stampSteps is the stamper: one statement at a time, on a connection of its own.
func (m *model) stampSteps(s *state, i int, out emit) {
	items, who := s.inst[i].items, int8(i)
	ready := items.any(func(d *delivery) bool { return d.phase.outcome() && d.stamp == unstamped })
	running := items.any(func(d *delivery) bool { return d.stamp == underWay || d.stamp == halfDone })
	ran := items.any(func(d *delivery) bool { return d.stamp.ran() })
	if ready && !running && !ran {
		t := *s
		m.sendStamp(&t, i)
		out(step{"sends a stamp for the outcomes gathered", who, -1}, 29, t)
	}
	if running {
		t := *s
		m.runStamp(&t, i, &t.inst[i].items)
		out(step{"stamp runs and commits", who, -1}, 26, t)
	}
	if ran && !running {
		t := *s
		m.stampReply(&t, i)
		out(step{"stamp's reply arrives", who, -1}, 25, t)
	}
	if running || ran {
		fault(s, func(b *budget) *uint8 { return &b.lostStamp }, step{"the stamp's connection is cut", who, -1}, out, func(t *state) {
			t.leaveStamp(i)
			m.doubtStamp(t, i)
		})
	}
	if items.any(func(d *delivery) bool { return d.phase.doubt() }) {
		t := *s
		m.readBackDoubts(&t, i)
		out(step{"reads back what became of the stamp", who, -1}, 28, t)
	}
}

func (m *model) sendStamp(t *state, i int) {
	a := &t.inst[i]
	for k := range a.items {
		d := &a.items[k]
		if d.row == 0 || !d.phase.outcome() {
			continue
		}
		d.stamp = underWay
		if !m.has(inFlightUntilStamped) {
			t.late[i].add(*d)
			a.items[k] = delivery{}
		}
	}
	a.items.sort()
}

// runStamp is the statement's effect on the database; its answers stay with the deliveries.
func (m *model) runStamp(t *state, i int, ds *deliveries) {
	ds.each(func(d *delivery) {
		row := &t.db.rows[d.row-1]
		switch {
		case d.stamp == halfDone:
			m.settle(t, d, row)
		case d.stamp != underWay:
		case t.locked.has(int(d.row) - 1):
			d.stamp = lockedRow
		case !t.db.holds(d, m.has(fenceNamesEpoch)) && m.has(stampIsFenced):
			d.stamp = fenced
		default:
			t.db.takeOut(d)
			if m.has(stampIsOneStatement) {
				m.settle(t, d, row)
			} else {
				d.stamp = halfDone
			}
		}
	})
}

// settle writes a delivery's outcome, unless the row is another version than was sent.
func (m *model) settle(t *state, d *delivery, row *outboxRow) {
	if d.phase == delivered && row.mark == dead && !t.record[d.row-1].touched {
		t.broken = deadThoughDelivered
	}
	if row.version != d.version && m.has(stampChecksVersion) {
		d.stamp = changedRow
		return
	}
	d.stamp = settled
	if d.deposed {
		t.broken = deposedStamp
	}
	if row.mark != pending {
		return
	}
	switch d.phase {
	case delivered:
		row.set(published)
	case rejected:
		row.set(dead)
	case unknown:
		row.failure = waiting
	case refused:
		row.failure = waiting
		if row.attempts++; row.attempts == maxAttempts {
			row.set(dead)
		}
	}
}

func (row *outboxRow) set(to mark) {
	row.mark, row.failure, row.attempts = to, noFailure, 0
	row.version++
}

func (db *database) holds(d *delivery, byEpoch bool) bool {
	c := db.claims[d.claim]
	return c.ids.has(int(d.row)-1) && (c.epoch == d.epoch || !byEpoch)
}

func (db *database) takeOut(d *delivery) {
	c := &db.claims[d.claim]
	if c.ids &^= one(int(d.row) - 1); c.ids == 0 {
		*c = claimRow{}
	}
}

func (m *model) stampReply(t *state, i int) {
	a := &t.inst[i]
	for k := range a.items {
		d := &a.items[k]
		if d.row == 0 || d.stamp == unstamped {
			continue
		}
		switch d.stamp {
		case lockedRow:
			d.stamp = unstamped
		case fenced:
			d.doubt()
		case changedRow:
			m.forget(t, i, k, true)
		case settled:
			m.forget(t, i, k, d.phase == back)
		}
	}
	a.items.sort()
}

// forget takes a delivery out of the in-flight set; what is still to be sent is asked for again.
func (m *model) forget(t *state, i, k int, again bool) {
	a := &t.inst[i]
	r := int(a.items[k].row) - 1
	a.items[k] = delivery{}
	if a.lead != leading {
		return
	}
	if again && m.has(backIsAskedAgain) {
		a.queue |= one(r)
	}
	a.queue |= a.behind
	a.behind = 0
	if a.claim.stage != idle {
		a.claim.keySettledMeanwhile = true
	}
}

func (d *delivery) doubt() {
	if d.phase == delivered || d.phase == doubtDelivered {
		d.phase = doubtDelivered
	} else {
		d.phase = doubtOther
	}
	d.stamp = unstamped
}

// leaveStamp: a statement on its way outlives its connection.
func (t *state) leaveStamp(i int) {
	var rest deliveries
	t.inst[i].items.each(func(d *delivery) {
		if d.stamp == underWay || d.stamp == halfDone {
			rest.add(*d)
		}
	})
	if rest != (deliveries{}) {
		t.late[i] = rest
	}
}

func (m *model) doubtStamp(t *state, i int) {
	a := &t.inst[i]
	for k := range a.items {
		d := &a.items[k]
		if d.row == 0 || d.stamp == unstamped {
			continue
		}
		if m.has(readBack) {
			d.doubt()
		} else {
			m.forget(t, i, k, true)
		}
	}
	a.items.sort()
}

// readBackDoubts: marked is done. Who has led without a break marks what it knows to be delivered; the rest is asked for again.
func (m *model) readBackDoubts(t *state, i int) {
	a := &t.inst[i]
	for k := range a.items {
		d := &a.items[k]
		if d.row == 0 || !d.phase.doubt() {
			continue
		}
		row := &t.db.rows[d.row-1]
		own := !d.foreign && a.lead != standby && t.lock == uint8(i+1)
		if own && m.has(readBackTakesClaim) && t.db.holds(d, true) {
			t.db.takeOut(d)
		}
		if own && d.phase == doubtDelivered && row.mark == pending && row.version == d.version {
			row.set(published)
		}
		m.forget(t, i, k, row.mark == pending)
	}
	a.items.sort()
}
