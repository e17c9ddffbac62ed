package relay

import (
	"fmt"
	"math"
	"time"
)

const (
	// pauseFloor keeps full jitter from drawing no pause at all.
	pauseFloor = 10 * time.Millisecond
	// unknownCalls is how many calls in a row may end without an answer.
	unknownCalls = 3
	// reasonStarting is the pause before the destination was reached for the first time.
	reasonStarting = "starting"
)

type phase uint8

const (
	// phasePaused sends nothing; when the pause is over the destination is opened again.
	phasePaused phase = iota
	// phaseProbing was opened after a call had failed: one row goes, and its answer decides.
	phaseProbing
	// phaseFlowing sends, on a window that grows to the concurrency.
	phaseFlowing
)

// health is what a person is told about a destination. It is paused from the failure
// until something got through, probes included.
type health struct {
	paused         bool
	reason, detail string
	since          time.Time
}

// breaker decides when and how much may be sent. It starts paused, with the pause over.
type breaker struct {
	initial, max time.Duration
	concurrency  int
	rnd          func() float64

	health
	phase    phase
	until    time.Time // end of the pause
	unproven bool      // a call failed: that the destination can be opened is not enough
	failures int       // pauses since something got through
	unknowns int       // calls in a row without an answer and without an acceptance elsewhere
	window   int       // calls in flight that it allows
	epoch    int       // counts pauses: calls from before the last one say nothing about now
}

// tally is what the messages of a call that were sent came to.
type tally struct {
	delivered int
	answered  int // delivered, refused or rejected: the destination works
	unknown   int
	detail    string // of an unknown outcome
}

// opened is told what became of Open.
func (b *breaker) opened(now time.Time, fault *Fault) {
	switch {
	case fault != nil:
		b.pause(now, fault.Reason, fault.Detail)
	case b.unproven:
		b.phase, b.window = phaseProbing, 1
	default:
		b.flow(now)
	}
}

// judge is told what became of a call that began in the given epoch.
func (b *breaker) judge(now time.Time, epoch int, t tally, fault *Fault) {
	switch {
	case t.delivered > 0:
		b.unknowns = 0
	case t.unknown > 0:
		b.unknowns++
	}
	if epoch != b.epoch {
		return
	}
	switch {
	case fault != nil:
		b.unproven = true
		b.pause(now, fault.Reason, fault.Detail)
	case t.answered > 0 && b.phase == phaseProbing:
		b.flow(now)
	case t.answered > 0:
		// One more per answer doubles the calls in flight with each round trip.
		b.window = min(b.window+1, b.concurrency)
	case t.unknown > 0 && (b.phase == phaseProbing || b.unknowns >= unknownCalls):
		b.unproven = true
		b.pause(now, "no_answer", fmt.Sprintf("%d calls in a row had an unknown outcome; the last: %s", b.unknowns, t.detail))
	}
}

// pause draws its length with full jitter from min(max, initial·2ⁿ).
func (b *breaker) pause(now time.Time, reason, detail string) {
	ceiling := min(math.Ldexp(float64(b.initial), b.failures), float64(b.max))
	length := max(b.rnd()*ceiling, min(float64(pauseFloor), ceiling))
	if !b.paused || b.reason == reasonStarting {
		b.since = now
	}
	b.paused, b.reason, b.detail = true, reason, detail
	b.until = now.Add(time.Duration(length))
	b.phase, b.window = phasePaused, 0
	b.failures++
	b.epoch++
}

// flow begins to send with one call at a time.
func (b *breaker) flow(now time.Time) {
	b.health = health{since: now}
	b.phase, b.window = phaseFlowing, 1
	b.unproven, b.failures = false, 0
}
