package protocol

// ownerSteps is what business transactions and people do with the rows.
func (m *model) ownerSteps(s *state, out emit) {
	for r := range m.rows {
		row, st := s.db.rows[r], step{"", -1, int8(r)}
		switch row.life {
		case absent:
			if m.mayInsert(s, r) {
				t := *s
				t.db.rows[r].life = open
				if !m.has(claimReadsTheTable) {
					t.slot |= one(r)
				}
				st.what = "owner inserts"
				out(st, optional, t)
			}
		case open:
			t := *s
			t.db.rows[r].life = flushed
			if m.stream {
				t.slot |= one(r)
			}
			m.flush(&t)
			st.what = "owner's commit is in the WAL"
			out(st, 2, t)
			st.what = "owner rolls back"
			fault(s, func(b *budget) *uint8 { return &b.rollback }, st, out, func(t *state) { t.db.rows[r].life = rolledBack })
		case flushed:
			t := *s
			t.db.rows[r].life = committed
			m.flush(&t)
			st.what = "owner's commit becomes visible"
			out(st, 1, t)
		case committed:
			m.updateSteps(s, r, out)
		}
	}
}

// mayInsert: ids rise; writers of one key take turns.
func (m *model) mayInsert(s *state, r int) bool {
	if r == 0 {
		return true
	}
	before := s.db.rows[r-1].life
	return before == committed || before == rolledBack || !m.keyed && before != absent
}

func (m *model) updateSteps(s *state, r int, out emit) {
	st := step{"", -1, int8(r)}
	if s.locked.has(r) {
		t := *s
		t.locked &^= one(r)
		st.what = "owner's open transaction ends"
		out(st, 3, t)
		return
	}
	st.what = "somebody's open transaction locks"
	fault(s, func(b *budget) *uint8 { return &b.lockedRow }, st, out, func(t *state) { t.locked |= one(r) })
	if s.db.rows[r].mark == pending {
		st.what = "owner changes"
		fault(s, func(b *budget) *uint8 { return &b.change }, st, out, func(t *state) { m.ownerWrites(t, r) })
		st.what = "somebody settles by hand"
		fault(s, func(b *budget) *uint8 { return &b.settle }, st, out, func(t *state) {
			m.ownerWrites(t, r)
			t.db.rows[r].mark = dead
		})
		return
	}
	st.what = "owner re-arms"
	fault(s, func(b *budget) *uint8 { return &b.rearm }, st, out, func(t *state) {
		if t.db.rows[r].mark == published || t.record[r].credit == 0 {
			t.record[r].credit++
		}
		t.db.rows[r].mark, t.db.rows[r].failure, t.db.rows[r].attempts = pending, noFailure, 0
		t.byHand, t.record[r].setBack = true, true
		m.ownerWrites(t, r)
	})
}

// ownerWrites gives the row a new version, which is owed to the destination; what is in flight of it may repeat.
func (m *model) ownerWrites(t *state, r int) {
	row := &t.db.rows[r]
	for i := range t.inst {
		t.inst[i].items.each(func(d *delivery) {
			if int(d.row) == r+1 && !d.stamp.took() {
				t.excuse(d)
			}
		})
		if c := &t.inst[i].claim; c.stage == answered && c.got.has(r) && !c.excused.has(r) {
			c.excused |= one(r)
			t.record[r].credit++
		}
	}
	row.version++
	t.record[r].owed = row.version
	t.record[r].touched = true
	m.flush(t)
}

// excuse lets a row be accepted once more, once for each delivery of it.
func (t *state) excuse(d *delivery) {
	if !d.excused {
		d.excused = true
		t.record[d.row-1].credit++
	}
}

// serverSteps is what PostgreSQL does by itself.
func (m *model) serverSteps(s *state, out emit) {
	for r := range m.rows {
		if s.db.rows[r].failure == waiting {
			t := *s
			t.db.rows[r].failure = due
			out(step{"time passes: the retry is due", -1, int8(r)}, 40, t)
		}
	}
	if s.left.serverCrash == 0 {
		return
	}
	if s.disk != s.db {
		t := *s
		m.flush(&t)
		out(step{"WAL writer flushes", -1, -1}, optional, t)
	}
	t := *s
	lostDisk := t.disk
	if t.spend(func(b *budget) *uint8 { return &b.serverCrash }) {
		m.serverCrash(&t, lostDisk)
		out(step{"PostgreSQL crashes: what was not flushed is gone", -1, -1}, optional, t)
	}
}

func (m *model) serverCrash(t *state, disk database) {
	was := t.db
	t.db = disk
	for r := range t.db.rows {
		row := &t.db.rows[r]
		switch row.life {
		case open:
			row.life = rolledBack
		case flushed:
			row.life = committed
		}
		if was.rows[r].life == open {
			row.life = rolledBack
		}
		if was.rows[r].mark == published && row.mark == pending {
			t.record[r].credit++
		}
	}
	for c := range was.claims {
		if was.claims[c].by != 0 && t.db.claims[c].by == 0 {
			t.db.reused |= one(c)
		}
	}
	t.lock, t.locked, t.late = 0, 0, [instanceCount]deliveries{}
	for i := range t.inst {
		m.excuseSent(t, i)
		a := &t.inst[i]
		a.items.each(func(d *delivery) {
			if d.stamp != unstamped {
				d.doubt()
			}
			if !t.db.holds(d, true) {
				d.lostHold = true
			}
		})
		m.loseLead(t, i)
	}
	if t.left.serverCrash > 0 {
		t.disk = t.db
	}
}
