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

	results []Result // one per row of batch
	answers []Result // one per message that was sent
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
	if !d.mayCall(ctx) {
		c.results = slices.Repeat([]Result{{Outcome: OutcomeBack}}, len(c.batch))
		return
	}
	addressed, ok := d.cfg.pub.(Addressed)
	switch {
	case ok:
		d.publishAddressed(ctx, c, addressed)
	case slices.ContainsFunc(c.batch, func(it item) bool { return it.once() }):
		d.publishClaimed(ctx, c)
	default:
		msgs := make([]*Message, len(c.batch))
		for i, it := range c.batch {
			msgs[i] = it.msg
		}
		c.results, c.fault = d.transmit(ctx, msgs)
		c.answers = c.results
	}
}

// transmit makes one call of the publisher, whose deadline is the publisher's: one that ran out here would look to it like a stop.
func (d *destination) transmit(ctx context.Context, msgs []*Message) ([]Result, *Fault) {
	d.cfg.metrics.batch.WithLabelValues(d.cfg.name).Observe(float64(len(msgs)))
	results, fault := d.cfg.pub.Publish(ctx, msgs)
	if got := len(results); got != len(msgs) {
		results = slices.Repeat([]Result{{Outcome: OutcomeUnknown, Reason: "bad_answer",
			Detail: fmt.Sprintf("the publisher gave %d results for %d messages", got, len(msgs))}}, len(msgs))
	}
	return results, fault
}

// judge draws the conclusions for the destination and for each row.
func (d *destination) judge(ctx context.Context, c *call, now time.Time) {
	t := c.tally()
	d.accepted += uint64(t.delivered)
	if ctx.Err() == nil { // calls that we cut ourselves say nothing
		d.breaker.judge(now, c.epoch, t, c.fault)
	}
	for i, it := range c.batch {
		key := it.key()
		var e evidence
		switch c.results[i].Outcome {
		case OutcomeRetry, OutcomeUnknown:
			e = d.tries.failed(key, c.mark, d.accepted)
		case OutcomeDelivered, OutcomeRejected, outcomeUncertain:
			d.tries.forget(key)
		}
		it.verdict = decide(d.cfg.retry, &it.row, c.results[i], e, d.breaker.rnd())
		if it.verdict.final() {
			d.refused.forget(key)
		}
	}
}

// tally counts the answers.
func (c *call) tally() tally {
	var t tally
	for _, r := range c.answers {
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

// measure counts a call's answers.
func (d *destination) measure(c *call, now time.Time) {
	m, name := d.cfg.metrics, d.cfg.name
	if len(c.answers) == 0 && c.fault != nil { // before anything was sent
		m.failures.WithLabelValues(name, c.fault.Reason).Add(float64(len(c.batch)))
	}
	delivered := 0
	for _, r := range c.answers {
		switch {
		case r.Outcome == OutcomeDelivered:
			delivered++
		case c.fault != nil && r.Outcome == OutcomeBack:
			m.failures.WithLabelValues(name, c.fault.Reason).Inc()
		default:
			m.failures.WithLabelValues(name, r.Reason).Inc()
		}
	}
	if delivered == 0 {
		return
	}
	m.published.WithLabelValues(name).Add(float64(delivered))
	for i, it := range c.batch {
		if c.results[i].Outcome == OutcomeDelivered && !it.committed.IsZero() {
			m.endToEnd.WithLabelValues(name, it.source).Observe(max(0, now.Sub(it.committed).Seconds()))
		}
	}
}
