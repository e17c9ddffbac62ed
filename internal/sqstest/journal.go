package sqstest

import (
	"slices"
	"sync"
)

// journal remembers what a queue of one name ever accepted. It outlives the queue, and
// can be waited for before there is one.
type journal struct {
	mu       sync.Mutex
	keep     int // most messages kept; 0 keeps all
	messages []Message
	dropped  int // messages that keep pushed out
	swallows int // sends that the deduplication window swallowed
	grown    signal
}

func (j *journal) add(messages []Message, swallowed int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.swallows += swallowed
	if len(messages) == 0 {
		return
	}
	j.messages = append(j.messages, messages...)
	// Trimming at twice the bound moves each message once at most.
	if j.keep > 0 && len(j.messages) >= 2*j.keep {
		over := len(j.messages) - j.keep
		j.messages = slices.Delete(j.messages, 0, over)
		j.dropped += over
	}
	j.grown.fire()
}

// from copies the messages accepted after the first n.
func (j *journal) from(n int) []Message {
	j.mu.Lock()
	defer j.mu.Unlock()
	n = min(max(n-j.dropped, 0), len(j.messages))
	return slices.Clone(j.messages[n:])
}

// count tells how many messages were accepted; grown is closed when there are more.
func (j *journal) count() (n int, grown <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dropped + len(j.messages), j.grown.next()
}

func (j *journal) swallowed() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.swallows
}
