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
