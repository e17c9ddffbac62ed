package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// call is one batch on its way.
type call struct {
	batch []item
	mark  uint64 // acceptances when it began
	epoch int    // of the breaker when it began

	stale   bool     // nothing was sent: the lead was not fresh, or run ended
	results []Result // one per row of batch
	fault   *Fault
}

// do makes the call and settles its rows. Their outcomes are settled before their
// lines move on, so that the outcomes of one line are settled in its order.
func (d *destination) do(ctx context.Context, c *call) {
	d.publish(ctx, c)
	now := time.Now()
	d.update(func() { d.judge(ctx, c, now) })
	d.measure(c, now)
	d.cfg.settle(deliveries(c.batch))

	var back []*delivery
	d.update(func() {
		for i, it := range c.batch {
			back = append(back, d.lines.done(it.line, c.results[i].Outcome == OutcomeDelivered)...)
		}
		if d.breaker.phase == phasePaused {
			back = append(back, d.lines.drop()...)
		}
		d.calls--
		d.flying -= len(c.batch)
		if d.calls == 0 && d.idle != nil {
			close(d.idle)
			d.idle = nil
		}
	})
	d.giveBack(back)
}

// publish fills in the results.
func (d *destination) publish(ctx context.Context, c *call) {
	if c.stale = ctx.Err() != nil || !d.cfg.maySend(); c.stale {
		c.results = slices.Repeat([]Result{{Outcome: OutcomeBack}}, len(c.batch))
		return
	}
	msgs := make([]*Message, len(c.batch))
	for i, it := range c.batch {
		msgs[i] = it.msg
	}
	limited, cancel := context.WithTimeout(ctx, d.cfg.timeout)
	defer cancel()
	c.results, c.fault = d.cfg.pub.Publish(limited, msgs)
	if got := len(c.results); got != len(msgs) {
		c.results = slices.Repeat([]Result{{Outcome: OutcomeUnknown, Reason: "bad_answer",
			Detail: fmt.Sprintf("the publisher gave %d results for %d messages", got, len(msgs))}}, len(msgs))
	}
}

// judge draws the conclusions for the destination and for each row.
func (d *destination) judge(ctx context.Context, c *call, now time.Time) {
	t := c.tally()
	d.accepted += uint64(t.delivered)
	if ctx.Err() == nil { // calls that we cut ourselves say nothing
		d.breaker.judge(now, c.epoch, t, c.fault)
	}
	for i, it := range c.batch {
		key := rowKey{table: it.table.Name, id: it.row.ID}
		var e evidence
		switch c.results[i].Outcome {
		case OutcomeRetry, OutcomeUnknown:
			e = d.tries.failed(key, c.mark, d.accepted)
		case OutcomeDelivered, OutcomeRejected, outcomeUncertain:
			d.tries.forget(key)
		}
		it.verdict = decide(d.cfg.retry, &it.row, c.results[i], e, d.breaker.rnd())
	}
}

// tally counts the results.
func (c *call) tally() tally {
	var t tally
	for _, r := range c.results {
		switch r.Outcome {
		case OutcomeDelivered:
			t.delivered++
			t.answered++
		case OutcomeRetry, OutcomeRejected:
			t.answered++
		case OutcomeUnknown:
			t.unknown++
			t.detail = cmp.Or(r.Detail, r.Reason)
		}
	}
	return t
}

// measure counts a call's results.
func (d *destination) measure(c *call, now time.Time) {
	if c.stale {
		return
	}
	m, name := d.cfg.metrics, d.cfg.name
	m.batch.WithLabelValues(name).Observe(float64(len(c.batch)))
	delivered := 0
	for i, it := range c.batch {
		r := c.results[i]
		switch {
		case r.Outcome == OutcomeDelivered:
			delivered++
			if !it.committed.IsZero() {
				m.endToEnd.WithLabelValues(name, it.source).Observe(max(0, now.Sub(it.committed).Seconds()))
			}
		case c.fault != nil && r.Outcome == OutcomeBack:
			m.failures.WithLabelValues(name, c.fault.Reason).Inc()
		default:
			m.failures.WithLabelValues(name, r.Reason).Inc()
		}
	}
	if delivered > 0 {
		m.published.WithLabelValues(name).Add(float64(delivered))
	}
}
