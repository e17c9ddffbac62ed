package sqstest

import (
	"container/heap"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// account is the one that queues belong to, in their URLs and ARNs.
const account = "000000000000"

// queue is one queue: what waits in it and what is in flight.
type queue struct {
	name    string
	journal *journal

	mu       sync.Mutex
	attrs    map[string]string
	settings settings // attrs, parsed
	created  time.Time
	modified time.Time
	purged   time.Time

	order   uint64 // of the last accepted message
	lanes   laneHeap
	groups  map[string]*lane   // FIFO: lines by message group
	live    map[string]*stored // by message id
	window  window
	changed signal
}

// receipt is what a sender gets for an accepted message.
type receipt struct{ messageID, sequence string }

func newQueue(name string, now time.Time, set map[string]string, j *journal) *queue {
	attrs := defaultAttributes(strings.HasSuffix(name, ".fifo"))
	maps.Copy(attrs, set)
	return &queue{
		name: name, journal: j, attrs: attrs, settings: parseSettings(attrs), created: now, modified: now,
		groups: map[string]*lane{}, live: map[string]*stored{},
	}
}

func (q *queue) current() settings {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.settings
}

// accept stores messages in their order and returns a receipt for each. A duplicate gets
// the receipt of the first one; recordings of AWS say so, its documentation doesn't.
func (q *queue) accept(clock func() time.Time, messages []*outgoing) []receipt {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := clock()
	receipts := make([]receipt, len(messages))
	accepted := make([]Message, 0, len(messages))
	for i, o := range messages {
		var id, key string
		if q.settings.fifo {
			id, key = o.dedupKey(q.settings)
			if first, seen := q.window.find(now, key); seen {
				receipts[i] = first
				continue
			}
		}
		m := q.store(now, o, id)
		receipts[i] = receipt{messageID: m.MessageID, sequence: m.SequenceNumber}
		if q.settings.fifo {
			q.window.remember(now, key, receipts[i])
		}
		accepted = append(accepted, m.Message)
	}
	// Under the lock, so that the journal has the queue's order.
	q.journal.add(accepted, len(messages)-len(accepted))
	q.changed.fire()
	return receipts
}

// store puts one message into its line.
func (q *queue) store(now time.Time, o *outgoing, dedupID string) *stored {
	q.order++
	delay := q.settings.delay
	if o.DelaySeconds != nil && !q.settings.fifo {
		delay = time.Duration(*o.DelaySeconds) * time.Second
	}
	m := &stored{
		Message: Message{
			MessageID: newID(), Body: o.MessageBody, Attributes: o.attributes(), GroupID: deref(o.MessageGroupID),
			DedupID: dedupID, Delay: delay, ReceivedAt: now,
		},
		order: q.order, sent: o, visibleAt: now.Add(delay),
	}
	if q.settings.fifo {
		m.SequenceNumber = sequenceNumber(q.order)
		m.lane = q.groups[m.GroupID]
	}
	q.live[m.MessageID] = m
	if m.lane != nil {
		m.lane.messages = append(m.lane.messages, m)
		return m
	}
	m.lane = &lane{group: m.GroupID, messages: []*stored{m}}
	if q.settings.fifo {
		q.groups[m.GroupID] = m.lane
	}
	m.lane.settle()
	heap.Push(&q.lanes, m.lane)
	return m
}

// take hands out up to n messages and hides them for a while. Lines come out oldest
// first, and of a FIFO group as many as there is room for, in order.
func (q *queue) take(now time.Time, n int, hide time.Duration) []*stored {
	var taken []*stored
	var touched []*lane
	for len(taken) < n && len(q.lanes) > 0 && !q.lanes[0].readyAt.After(now) {
		l := q.lanes[0]
		heap.Pop(&q.lanes)
		q.expire(now, l)
		for _, m := range l.messages {
			if len(taken) == n || m.visibleAt.After(now) {
				break
			}
			if m.receives++; m.receives == 1 {
				m.firstReceived = now
			}
			m.visibleAt = now.Add(hide)
			taken = append(taken, m)
		}
		touched = append(touched, l)
	}
	for _, l := range touched {
		if len(l.messages) == 0 {
			delete(q.groups, l.group)
			continue
		}
		l.settle()
		heap.Push(&q.lanes, l)
	}
	return taken
}

// expire drops a line's messages that are past the queue's retention.
func (q *queue) expire(now time.Time, l *lane) {
	for len(l.messages) > 0 && !l.messages[0].ReceivedAt.Add(q.settings.retention).After(now) {
		delete(q.live, l.messages[0].MessageID)
		l.remove(l.messages[0])
	}
}

// remove deletes a message.
func (q *queue) remove(m *stored) {
	delete(q.live, m.MessageID)
	m.lane.remove(m)
	if len(m.lane.messages) == 0 {
		heap.Remove(&q.lanes, m.lane.index)
		delete(q.groups, m.lane.group)
	} else {
		q.moved(m.lane)
	}
	q.changed.fire()
}

// moved puts a line where it belongs after one of its messages changed.
func (q *queue) moved(l *lane) {
	l.settle()
	heap.Fix(&q.lanes, l.index)
}

// purge empties the queue; the deduplication window stays.
func (q *queue) purge() {
	q.lanes, q.groups, q.live = nil, map[string]*lane{}, map[string]*stored{}
}

// describe gives the attributes that AWS computes.
func (q *queue) describe(now time.Time) map[string]string {
	waiting, hidden, delayed := 0, 0, 0
	for _, m := range q.live {
		switch {
		case !m.visibleAt.After(now):
			waiting++
		case m.receives > 0:
			hidden++
		default:
			delayed++
		}
	}
	all := maps.Clone(q.attrs)
	maps.Copy(all, map[string]string{
		"QueueArn":                              "arn:aws:sqs:us-east-1:" + account + ":" + q.name,
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Unix(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Unix(), 10),
		"ApproximateNumberOfMessages":           strconv.Itoa(waiting),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(hidden),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(delayed),
	})
	return all
}
