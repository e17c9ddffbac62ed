package relay

import (
	"errors"

	"pgrelay/internal/config"
)

// triesAlone is how often a row whose outcome stays unknown goes alone in its call
// before that counts as its own fault.
const triesAlone = 3

// evidence is what the destination did for others while it failed a row. Without it a
// failure says nothing about the row, and an outage would kill it.
type evidence struct {
	sinceFirst bool // another message was accepted since the row's first try, or in the same call
	sinceLast  bool // another message was accepted since the row's last try but this one
}

// decide turns one result into what the stamp does with the row.
func decide(r config.Retry, row *Row, res Result, e evidence, rnd float64) verdict {
	v := verdict{reason: res.Reason, detail: res.Detail}
	switch res.Outcome {
	case OutcomeDelivered:
		return verdict{kind: verdictDelivered}
	case OutcomeRejected:
		v.kind = verdictDead
		return v
	case outcomeUncertain:
		v.kind = verdictUncertain
		return v
	case OutcomeBack:
		return verdict{kind: verdictBack}
	case OutcomeRetry:
		v.delay = backoff(r, row.Attempts, rnd)
	default:
		// The first unknown outcome may be a neighbour's doing; the row is alone from then on.
		if row.Unknowns < triesAlone || !e.sinceLast {
			v.kind, v.delay = verdictUnknown, backoff(r, row.Unknowns, rnd)
			return v
		}
		v.delay = backoff(r, row.Attempts+row.Unknowns, rnd)
	}
	v.kind = verdictRetry
	if row.Attempts+1 >= r.MaxAttempts && e.sinceFirst {
		v.kind, v.delay = verdictDead, 0
	}
	return v
}

// rejected is the result of a message that Check refuses.
func rejected(err error) Result {
	if r, ok := errors.AsType[*Rejection](err); ok {
		return Result{Outcome: OutcomeRejected, Reason: r.Reason, Detail: r.Detail}
	}
	return Result{Outcome: OutcomeRejected, Reason: "refused", Detail: err.Error()}
}
