package protocol

// publishSteps is the calls of an instance and their outcomes.
func (m *model) publishSteps(s *state, i int, out emit) {
	for k := range s.inst[i].items {
		d := s.inst[i].items[k]
		if d.row == 0 {
			continue
		}
		st := step{"", int8(i), int8(d.row - 1)}
		to := func(name string, u urgency, p phase, also func(*state, *delivery)) {
			t := *s
			x := &t.inst[i].items[k]
			x.phase = p
			also(&t, x)
			st.what = name
			out(st, u, t)
		}
		switch d.phase {
		case inLine:
			if m.maySend(&s.inst[i], d) {
				to("sends", 22, onWire, func(t *state, x *delivery) { m.judgeSend(t, i, x) })
			}
		case onWire:
			to("the destination accepts", 23, accepted, func(t *state, x *delivery) { m.accept(t, int(x.row)-1, x.version) })
			m.failedCalls(s, i, k, out)
		case accepted:
			to("the reply says delivered", 24, delivered, func(*state, *delivery) {})
			fault(s, func(b *budget) *uint8 { return &b.lostReply }, step{"the reply is lost", st.who, st.row}, out,
				func(t *state) { m.fail(t, i, k, unknown) })
		}
	}
}

// maySend: the lead is fresh, and the row is the first of its line.
func (m *model) maySend(a *instance, d delivery) bool {
	if a.lead != leading || !a.fresh && m.has(freshBeforeSend) {
		return false
	}
	return !m.keyed || !m.has(lineWaitsForDelivery) ||
		!a.items.any(func(x *delivery) bool { return x.row < d.row && x.phase != delivered })
}

// failedCalls: the destination refuses; the call is lost; it is given up while it is still on the wire.
func (m *model) failedCalls(s *state, i, k int, out emit) {
	st := step{"", int8(i), int8(s.inst[i].items[k].row - 1)}
	st.what = "the destination refuses, to be retried"
	fault(s, func(b *budget) *uint8 { return &b.refuse }, st, out, func(t *state) { m.fail(t, i, k, refused) })
	st.what = "the destination rejects for good"
	fault(s, func(b *budget) *uint8 { return &b.reject }, st, out, func(t *state) { m.fail(t, i, k, rejected) })
	st.what = "the call is cut before it arrives"
	fault(s, func(b *budget) *uint8 { return &b.lostReply }, st, out, func(t *state) { m.fail(t, i, k, unknown) })
	st.what = "the call times out and is still on the wire"
	fault(s, func(b *budget) *uint8 { return &b.lostReply }, st, out, func(t *state) {
		t.leaveCall(&t.inst[i].items[k])
		m.fail(t, i, k, unknown)
	})
}

// fail gives a call its outcome; the rest of its line goes back.
func (m *model) fail(t *state, i, k int, p phase) {
	d := &t.inst[i].items[k]
	d.phase = p
	if p == unknown {
		t.excuse(d)
	}
	if m.keyed {
		t.inst[i].items.each(func(x *delivery) {
			if x.row > d.row && x.phase == inLine {
				x.phase = back
			}
		})
	}
}

func (t *state) leaveCall(d *delivery) {
	for k := range t.strays {
		if t.strays[k].row == 0 {
			t.strays[k] = stray{d.row, d.version}
			return
		}
	}
}

// wireSteps is what arrives although nobody waits for it: calls and stamps.
func (m *model) wireSteps(s *state, out emit) {
	for k := range s.strays {
		if x := s.strays[k]; x.row != 0 {
			t := *s
			t.strays[k] = stray{}
			out(step{"the call left behind never arrives", -1, int8(x.row - 1)}, 4, t)
			m.accept(&t, int(x.row)-1, x.version)
			out(step{"the call left behind is accepted", -1, int8(x.row - 1)}, optional, t)
		}
	}
	for i := range s.late {
		if s.late[i] != (deliveries{}) {
			t := *s
			m.runStamp(&t, i, &t.late[i])
			if !t.late[i].any(func(d *delivery) bool { return d.stamp == halfDone }) {
				t.late[i] = deliveries{}
			}
			out(step{"the stamp left behind runs late", int8(i), -1}, optional, t)
			t = *s
			t.late[i] = deliveries{}
			out(step{"the stamp left behind never runs", int8(i), -1}, 5, t)
		}
	}
}
