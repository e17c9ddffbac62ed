package relay

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pgrelay/internal/config"
)

func TestBackoffGrowsWithTriesUpToItsMaximum(t *testing.T) {
	t.Parallel()
	for n, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		require.Equal(t, want, backoff(retryOf(3), n, 0.5))
	}
	require.Equal(t, 5*time.Minute, backoff(retryOf(3), 9, 0.5))
}

func TestBackoffJittersBothWays(t *testing.T) {
	t.Parallel()
	require.Equal(t, 800*time.Millisecond, backoff(retryOf(3), 0, 0))
	require.InDelta(t, float64(1200*time.Millisecond), float64(backoff(retryOf(3), 0, math.Nextafter(1, 0))), 1000)
	require.Equal(t, 4*time.Minute, backoff(retryOf(3), 20, 0))
}

func TestBackoffNeverLeavesItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := config.Retry{
			Initial:    config.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "initial")),
			Max:        config.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "max")),
			Multiplier: rapid.Float64Range(1, 1e6).Draw(t, "multiplier"),
			Jitter:     rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		d := backoff(r, rapid.IntRange(0, math.MaxInt32).Draw(t, "n"), rapid.Float64Range(0, 1).Draw(t, "rnd"))
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, time.Duration(r.Max))
	})
}
