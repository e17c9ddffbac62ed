package relay

import (
	"math"
	"time"

	"pgrelay/internal/config"
)

// backoff is how long a row waits after n earlier tries: min(max, initial·multiplierⁿ) ±
// jitter, clamped to max. rnd is drawn evenly from [0, 1).
func backoff(r config.Retry, n int, rnd float64) time.Duration {
	most := float64(r.Max)
	d := float64(r.Initial) * math.Pow(r.Multiplier, float64(n))
	if !(d < most) { // also when the power overflowed
		d = most
	}
	return time.Duration(min(most, d*(1+r.Jitter*(2*rnd-1))))
}
