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
