package relay

import "time"

// dispatch hands claimed rows to their destinations, in order; those that are not sent go to the stamp with their outcome. It returns the
// wants that were not taken, with rooms and budget reduced by what was.
func (c *claimer) dispatch(o *outbox, wants []want, ds []*delivery, rooms []int32, budget *int64) (left []want) {
	c.relay.flights.add(ds)
	taken := make(map[string]bool, len(ds))
	bySink := make([][]*delivery, len(c.relay.destinations))
	var unsent []*delivery
	stopped := map[lineKey]bool{} // by a row that is dead and holds it, or went back: what is behind it goes back
	for _, d := range ds {
		taken[d.row.ID] = true
		*budget -= d.size
		if d.route >= 0 {
			rooms[o.table.sinks[d.route]]--
		}
		if d.line != "" && stopped[d.lineKey()] {
			unsent = append(unsent, d)
			continue
		}
		if c.foregone(d) {
			unsent = append(unsent, d)
			if d.line != "" && (d.holdsOn() || d.verdict.kind == verdictBack) {
				stopped[d.lineKey()] = true
			}
			continue
		}
		sink := o.table.sinks[d.route]
		bySink[sink] = append(bySink[sink], d)
	}
	for sink, batch := range bySink {
		if len(batch) > 0 {
			c.relay.destinations[sink].enqueue(batch)
		}
	}
	if len(unsent) > 0 {
		c.relay.stamper.settle(unsent)
	}
	for _, w := range wants {
		if !taken[w.id] {
			left = append(left, w)
		}
	}
	return left
}

// foregone gives a row that is not sent its outcome: its event is in the ledger, or there is no message in it, and then it is dead, or goes
// back if its route is paused.
func (c *claimer) foregone(d *delivery) bool {
	if d.recorded {
		d.unsent, d.verdict = true, verdict{kind: verdictDelivered}
		c.relay.metrics.recorded.WithLabelValues(d.table.Name).Inc()
		return true
	}
	err := c.build(d)
	if err != nil {
		d.unsent, d.verdict = true, d.table.malformed(rejected(err))
		c.relay.guard.judge(time.Now(), []*delivery{d})
	}
	return err != nil
}

// build makes the row's message and has its destination look at it.
func (c *claimer) build(d *delivery) error {
	msg, err := compose(d.table, d.route, &d.row, c.relay.cfg.Destinations)
	if msg != nil {
		// The text is in the message now; what is kept of the row is what the stamp needs.
		d.row.Payload, d.row.Headers, d.row.Values = nil, nil, nil
		d.msg = msg
	}
	return err
}
