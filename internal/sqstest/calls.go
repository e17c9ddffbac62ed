package sqstest

import (
	"slices"
	"sync"
	"time"
)

// Call is one request that came in, whatever became of it.
type Call struct {
	Action     string // SendMessageBatch …
	Queue      string // its name; empty for actions without one
	Entries    int    // messages that it sent
	At         time.Time
	Authorized bool // it bore an Authorization header; nobody checks what that says
}

type callLog struct {
	mu     sync.Mutex
	keep   int // most calls kept; 0 keeps all
	calls  []Call
	counts map[string]int
}

func (l *callLog) add(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[c.Action]++
	l.calls = append(l.calls, c)
	if l.keep > 0 && len(l.calls) >= 2*l.keep {
		l.calls = slices.Delete(l.calls, 0, len(l.calls)-l.keep)
	}
}

// Calls returns the requests that came in, oldest first.
func (s *Server) Calls() []Call {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return slices.Clone(s.calls.calls)
}

// CallCount tells how many requests of an action came in, the SDK's retries included.
func (s *Server) CallCount(action string) int {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return s.calls.counts[action]
}
