package relay

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// A route that sends at most once claims each send before it is made, and ends the claim by what came of it: a row then tells, whatever dies,
// whether the message may have gone. To a destination whose messages are Addressed there is a send for each recipient, one after
// the other; elsewhere one for each message.

const (
	reasonUncertain = "uncertain"
	reasonNoClaims  = "claims_unavailable"
	// detailHeld is of a send whose claim was there already.
	detailHeld = "it was claimed before and never ended: that send may have arrived"
)

// once says whether the row's message is sent at most once.
func (d *delivery) once() bool {
	return d.route >= 0 && d.route < len(d.table.once) && d.table.once[d.route]
}

// loggable is its verdict as the log may show it: without recipients, who are a part of the payload.
func (d *delivery) loggable() verdict {
	v := d.verdict
	if d.route >= 0 && d.route < len(d.table.private) && d.table.private[d.route] && !d.unsent {
		v.detail = "`pgrelay explain` names the recipients"
	}
	return v
}

func (d *delivery) claimOf(recipient string) *sendClaim {
	return &sendClaim{
		table: d.table.Sends, sendKey: sendKey{d.table.Sends.Name, d.msg.EventID, recipient, d.msg.Kind}, epoch: d.epoch,
	}
}

// mayCall says whether a send may begin. It is asked before each.
func (d *destination) mayCall(ctx context.Context) bool {
	d.mu.Lock()
	aborted := d.aborted
	d.mu.Unlock()
	return !aborted && ctx.Err() == nil && d.cfg.maySend()
}

// unclaimed is the result of a send that was not claimed. A fault says that none can be.
func (c *sendClaim) unclaimed() (Result, *Fault) {
	switch c.state {
	case claimSent:
		return Result{Outcome: OutcomeDelivered}, nil
	case claimHeld:
		return Result{Outcome: OutcomeUnknown, Reason: reasonUncertain, Detail: detailHeld}, nil
	case claimRefused:
		return Result{Outcome: OutcomeRetry, Reason: "claim_refused", Detail: fmt.Sprintf("%s refuses its claim: %s", c.table.Name, c.detail)}, nil
	case claimAway:
		return Result{Outcome: OutcomeBack}, &Fault{
			Reason: reasonNoClaims, Detail: fmt.Sprintf("sends can't be claimed in %s, so none is made: %s", c.table.Name, c.detail),
		}
	default:
		return Result{Outcome: OutcomeBack}, nil
	}
}

// ends says what becomes of the claim by the result of its send.
func (c *sendClaim) ends(r Result) {
	switch r.Outcome {
	case OutcomeDelivered:
		c.end = endSent
	case OutcomeUnknown:
		c.end, c.detail = endKept, sentence(r.Reason, r.Detail)
	default:
		c.end = endReleased
	}
}

// publishClaimed claims a batch, or those rows of it that go at most once, and sends what it got claims for in one call.
func (d *destination) publishClaimed(ctx context.Context, c *call) {
	claims := make([]*sendClaim, len(c.batch))
	var all, taken []*sendClaim
	for i, it := range c.batch {
		if it.once() {
			claims[i] = it.claimOf(d.cfg.name)
			all = append(all, claims[i])
		}
	}
	d.cfg.sends.claim(all)
	c.results = make([]Result, len(c.batch))
	var going []int
	var msgs []*Message
	for i, claim := range claims {
		if claim != nil && claim.state != claimTaken {
			var fault *Fault
			c.results[i], fault = claim.unclaimed()
			c.fault = cmp.Or(c.fault, fault)
			continue
		}
		if claim != nil {
			taken = append(taken, claim)
		}
		going, msgs = append(going, i), append(msgs, c.batch[i].msg)
	}
	sends := c.fault == nil && len(going) > 0 && d.mayCall(ctx)
	if sends {
		c.answers, c.fault = d.transmit(ctx, msgs)
	}
	for n, i := range going {
		c.results[i].Outcome = OutcomeBack
		if sends {
			c.results[i] = c.answers[n]
		}
		if claims[i] != nil {
			claims[i].ends(c.results[i])
		}
	}
	d.cfg.sends.settle(taken)
	for i, r := range c.results {
		if claims[i] != nil && r.Outcome == OutcomeUnknown {
			c.results[i] = Result{Outcome: outcomeUncertain, Reason: reasonUncertain, Detail: sentence(r.Reason, r.Detail)}
		}
	}
}

// recipientResult is what came of one recipient.
type recipientResult struct {
	recipient string
	Result
}

// publishAddressed sends each message to one recipient after the other.
func (d *destination) publishAddressed(ctx context.Context, c *call, pub Addressed) {
	c.results = make([]Result, len(c.batch))
	for i, it := range c.batch {
		c.results[i].Outcome = OutcomeBack
		var got []recipientResult
		stopped := c.fault != nil
		for _, to := range pub.Recipients(it.msg) {
			r, ok := d.refused.of(it.delivery, to)
			if !ok && !stopped {
				r, stopped = d.sendTo(ctx, c, it, to)
			}
			got = append(got, recipientResult{to, r})
		}
		if !stopped {
			c.results[i] = combine(got)
		}
	}
}

// sendTo sends a message to one recipient. stop says that nothing more can be sent now, and that the row goes back.
func (d *destination) sendTo(ctx context.Context, c *call, it item, to string) (r Result, stop bool) {
	claim := []*sendClaim{it.claimOf(to)}
	d.cfg.sends.claim(claim)
	if claim[0].state != claimTaken {
		r, c.fault = claim[0].unclaimed()
		return r, r.Outcome == OutcomeBack
	}
	r.Outcome = OutcomeBack
	if d.mayCall(ctx) {
		m := *it.msg
		m.Recipient = to
		var answers []Result
		answers, c.fault = d.transmit(ctx, []*Message{&m})
		c.answers = append(c.answers, answers...)
		r = answers[0]
	}
	claim[0].ends(r)
	d.cfg.sends.settle(claim)
	if r.Outcome == OutcomeRejected {
		d.refused.add(it.delivery, to, r)
	}
	return r, r.Outcome == OutcomeBack || c.fault != nil
}

// combine makes of the recipients' results that of their event: as long as one is to be tried again the row is, then one who was
// refused for good makes it dead, and else one of whom nobody knows makes it uncertain.
func combine(got []recipientResult) Result {
	of := map[Outcome][]recipientResult{}
	for _, r := range got {
		of[r.Outcome] = append(of[r.Outcome], r)
	}
	later, refused, unknown := of[OutcomeRetry], of[OutcomeRejected], of[OutcomeUnknown]
	detail := name("", later) + name("refused for good: ", refused) + name("unknown whether it arrived: ", unknown)
	detail = strings.TrimSuffix(detail, "; ")
	switch {
	case len(later) > 0:
		return Result{Outcome: OutcomeRetry, Reason: later[0].Reason, Detail: detail}
	case len(refused) > 0:
		return Result{Outcome: OutcomeRejected, Reason: cmp.Or(refused[0].Reason, "recipient_refused"), Detail: detail}
	case len(unknown) > 0:
		return Result{Outcome: outcomeUncertain, Reason: reasonUncertain, Detail: detail}
	default:
		return Result{Outcome: OutcomeDelivered}
	}
}

// namedMost bounds how many recipients a detail names with what they answered.
const namedMost = 20

// name lists recipients and why, after a title.
func name(title string, got []recipientResult) string {
	var b strings.Builder
	for i, r := range got {
		if i == namedMost {
			fmt.Fprintf(&b, "and %d more; ", len(got)-i)
			break
		}
		if i == 0 {
			b.WriteString(title)
		}
		fmt.Fprintf(&b, "%s (%s); ", r.recipient, sentence(r.Reason, r.Detail))
	}
	return b.String()
}
