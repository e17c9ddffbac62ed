package replication

import "time"

// backoff doubles from first to most.
type backoff struct {
	first, most time.Duration
	last        time.Duration
}

func (b *backoff) next() time.Duration {
	b.last = min(max(b.first, 2*b.last), b.most)
	return b.last
}

func (b *backoff) reset() { b.last = 0 }
