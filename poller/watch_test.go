package poller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachRegularLookAsksForWhatIsDue(t *testing.T) {
	t.Parallel()
	for _, cheap := range []bool{true, false} {
		now := time.Now()
		w := &watch{lookAt: now, sweepAt: now.Add(time.Hour), cheap: cheap}
		planned := w.plan(now)
		require.True(t, planned.due)
		require.Equal(t, cheap, planned.full)
		require.Equal(t, !cheap, planned.pass)
		w.done(planned, now, time.Second)
		require.Equal(t, now.Add(time.Second), w.next(now))
		require.Equal(t, task{}, w.plan(now))
	}
}

func TestLookForOneDestinationThatIsUnderWayGoesOnBeforeItIsBegunAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := &watch{lookAt: now.Add(time.Hour), sweepAt: now.Add(time.Hour)}
	w.want(1)
	first := w.plan(now).sinks[1]
	require.Empty(t, w.plan(now).sinks)
	w.rests = map[int]*look{1: first} // broken off
	w.want(1)
	require.Equal(t, now, w.next(now))
	require.Same(t, first, w.plan(now).sinks[1])
	again := w.plan(now).sinks[1]
	require.NotSame(t, first, again, "what it had passed is looked at")
	require.Nil(t, again.from)
	require.Empty(t, w.plan(now).sinks)
	w.undone(task{sinks: map[int]*look{1: again}})
	require.Same(t, again, w.plan(now).sinks[1])
}

func TestLooksAtRowsThatWaitBackOffWhenTheyGetExpensive(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := &watch{conditional: true, lookAt: now, sweepAt: now, cheap: true}
	planned := w.plan(now)
	require.True(t, planned.full && planned.sweep)
	w.sweepAt = now.Add(time.Hour)
	planned.took = 40 * time.Millisecond
	w.done(planned, now, time.Second)
	require.Equal(t, now.Add(time.Second), w.next(now), "a twentieth of the time is not too much")
	planned.took = 300 * time.Millisecond
	w.done(planned, now, time.Second)
	require.Equal(t, now.Add(6*time.Second), w.next(now))
	w.sweepAt = now
	require.Equal(t, task{sweep: true}, w.plan(now), "the sweep brings no look before its time")
	w.want(-1)
	require.True(t, w.plan(now).full, "whoever asks for a look gets one")
}
