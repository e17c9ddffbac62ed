package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	noon    = time.Unix(43200, 0)
	outage  = &Fault{Reason: "unreachable", Detail: "nobody listens"}
	success = tally{delivered: 1, answered: 1}
	silence = tally{unknown: 1, detail: "timed out"}
)

// flowing is a breaker that was opened and has never failed.
func flowing(rnd float64) *breaker {
	b := &breaker{
		initial: 250 * time.Millisecond, max: 10 * time.Second, concurrency: 8,
		rnd: func() float64 { return rnd }, health: health{paused: true, reason: reasonStarting},
	}
	b.opened(noon, nil)
	return b
}

func TestPausesAreDrawnFromAWindowThatDoublesToItsMaximum(t *testing.T) {
	t.Parallel()
	almost := 1 - 1e-9
	b := flowing(almost)
	for n, ceiling := range []time.Duration{250, 500, 1000, 2000, 4000, 8000, 10000, 10000} {
		b.judge(noon, b.epoch, tally{}, outage)
		require.InDelta(t, float64(ceiling*time.Millisecond), float64(b.until.Sub(noon)), 1e6, "pause %d", n)
		b.opened(noon, nil)
	}
	b.failures = 100000
	b.judge(noon, b.epoch, tally{}, outage)
	require.InDelta(t, float64(10*time.Second), float64(b.until.Sub(noon)), 1e6, "without overflow")
}

func TestAPauseIsNeverNothing(t *testing.T) {
	t.Parallel()
	b := flowing(0)
	b.judge(noon, b.epoch, tally{}, outage)
	require.Equal(t, pauseFloor, b.until.Sub(noon))
}

func TestAfterAFailedCallOneRowProbesAndItsAnswerDecides(t *testing.T) {
	t.Parallel()
	b := flowing(0.5)
	b.judge(noon, b.epoch, tally{}, outage)
	require.Equal(t, phasePaused, b.phase)
	require.Equal(t, health{true, "unreachable", "nobody listens", noon}, b.health)

	b.opened(noon.Add(time.Second), nil)
	require.Equal(t, phaseProbing, b.phase)
	require.True(t, b.paused, "to be opened proves nothing after a call had failed")

	later := noon.Add(2 * time.Second)
	b.judge(later, b.epoch, tally{answered: 1}, nil)
	require.Equal(t, phaseFlowing, b.phase, "a refusal of one message is an answer as well")
	require.Equal(t, health{since: later}, b.health)
	require.Zero(t, b.failures)
}

func TestADestinationThatOnlyCouldNotBeOpenedNeedsNoProbe(t *testing.T) {
	t.Parallel()
	b := &breaker{initial: 1, max: 1, concurrency: 8, rnd: func() float64 { return 0 }}
	b.opened(noon, outage)
	require.Equal(t, phasePaused, b.phase)
	b.opened(noon, nil)
	require.Equal(t, phaseFlowing, b.phase)
}

func TestTheWindowGrowsByOnePerAnswerUpToTheConcurrency(t *testing.T) {
	t.Parallel()
	b := flowing(0.5)
	var windows []int
	for range 9 {
		windows = append(windows, b.window)
		b.judge(noon, b.epoch, success, nil)
	}
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 8}, windows)
}

func TestCallsFromBeforeAPauseSayNothingAboutNow(t *testing.T) {
	t.Parallel()
	b := flowing(0.5)
	before := b.epoch
	b.judge(noon, before, tally{}, outage)
	b.judge(noon, before, tally{}, outage)
	require.Equal(t, 1, b.failures, "one outage, one pause")
	b.judge(noon, before, success, nil)
	require.Equal(t, phasePaused, b.phase)
	b.opened(noon, nil)
	b.judge(noon, before, tally{}, outage)
	require.Equal(t, phaseProbing, b.phase)
}

func TestThreeUnknownCallsInARowPause(t *testing.T) {
	t.Parallel()
	b := flowing(0.5)
	for range 2 {
		b.judge(noon, b.epoch, silence, nil)
	}
	b.judge(noon, b.epoch, success, nil)
	for range 2 {
		b.judge(noon, b.epoch, silence, nil)
	}
	b.judge(noon, b.epoch, tally{answered: 1}, nil)
	require.Equal(t, phaseFlowing, b.phase, "an acceptance in between begins the count anew")
	b.judge(noon, b.epoch, silence, nil)
	require.Equal(t, phasePaused, b.phase, "a refusal doesn't")
	require.Equal(t, "no_answer", b.reason)
	require.Contains(t, b.detail, "timed out")

	b.opened(noon, nil)
	b.judge(noon, b.epoch, silence, nil)
	require.Equal(t, phasePaused, b.phase, "a probe without an answer is enough")
}
