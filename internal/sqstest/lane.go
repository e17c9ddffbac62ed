package sqstest

import "time"

// lane is a line of messages of which none is handed out while an earlier receive of the
// line is in flight: a message group of a FIFO queue, or one message of a standard queue.
type lane struct {
	group    string
	messages []*stored // in order of acceptance
	readyAt  time.Time // when the head can be received
	order    uint64    // sequence of the head: the older line first
	index    int       // place in the heap
}

// settle computes when the line can be received from. Received messages are a prefix,
// at most a few receives long, so this doesn't walk the backlog.
func (l *lane) settle() {
	head := l.messages[0]
	l.readyAt, l.order = head.visibleAt, head.order
	for _, m := range l.messages {
		if m.receives == 0 {
			return
		}
		if m.visibleAt.After(l.readyAt) {
			l.readyAt = m.visibleAt
		}
	}
}

// remove takes a message out. It moves the short part before it, not the backlog.
func (l *lane) remove(m *stored) {
	for i, x := range l.messages {
		if x == m {
			copy(l.messages[1:i+1], l.messages[:i])
			l.messages[0] = nil
			l.messages = l.messages[1:]
			return
		}
	}
}

// laneHeap orders lines by the time from which they can be received.
type laneHeap []*lane

func (h laneHeap) Len() int { return len(h) }

func (h laneHeap) Less(i, j int) bool {
	if c := h[i].readyAt.Compare(h[j].readyAt); c != 0 {
		return c < 0
	}
	return h[i].order < h[j].order
}

func (h laneHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *laneHeap) Push(x any) {
	l := x.(*lane) //nolint:errcheck // the heap holds nothing else
	l.index = len(*h)
	*h = append(*h, l)
}

// Pop implements heap.Interface.
func (h *laneHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return l
}
