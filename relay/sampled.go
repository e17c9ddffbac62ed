package relay

import (
	"sync"
	"time"
)

// sampled lets the first lines of a sort through in each period, so that a thousand rows that fail alike don't
// drown the log. What a sort is must be bounded. Safe for concurrent use.
type sampled struct {
	mu    sync.Mutex
	sorts map[string]sampledSort
}

type sampledSort struct {
	since time.Time
	lines int
}

const (
	sampledPeriod = time.Minute
	sampledLines  = 10
)

// line says whether to write a line, and whether it is the last of its sort for a while.
func (s *sampled) line(now time.Time, sort string) (write, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sorts == nil {
		s.sorts = map[string]sampledSort{}
	}
	one := s.sorts[sort]
	if now.Sub(one.since) >= sampledPeriod {
		one = sampledSort{since: now}
	}
	one.lines++
	s.sorts[sort] = one
	return one.lines <= sampledLines, one.lines == sampledLines
}
