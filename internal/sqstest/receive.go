package sqstest

import (
	"context"
	"strconv"
	"strings"
	"time"
)

type receiveMessage struct {
	queueRef
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
}

// received is the answer for one message.
type received struct {
	MessageID              string `json:"MessageId"`
	ReceiptHandle          string
	MD5OfBody              string
	Body                   string
	Attributes             map[string]string         `json:",omitempty"`
	MD5OfMessageAttributes string                    `json:",omitempty"`
	MessageAttributes      map[string]attributeValue `json:",omitempty"`
}

type receiveAnswer struct {
	Messages []received `json:",omitempty"`
}

func (in *receiveMessage) run(ctx context.Context, s *Server, _ Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	set := q.current()
	wait := seconds(in.WaitTimeSeconds, set.wait)
	expired := time.NewTimer(wait)
	defer expired.Stop()
	for {
		messages, next, changed := in.look(s.Now(), q)
		if len(messages) > 0 || wait == 0 {
			return receiveAnswer{messages}, nil
		}
		due := time.NewTimer(next)
		select {
		case <-changed:
		case <-due.C:
		case <-expired.C:
			wait = 0
		case <-s.closed:
			wait = 0
		case <-ctx.Done():
			due.Stop()
			return receiveAnswer{}, nil
		}
		due.Stop()
	}
}

func (in *receiveMessage) check() *apiError {
	const reason = "Value %d for parameter %s is invalid. Reason: Must be between %d and %d, if provided."
	for _, p := range []struct {
		name      string
		value     *int
		low, high int
	}{
		{"MaxNumberOfMessages", in.MaxNumberOfMessages, 1, maxEntries},
		{"VisibilityTimeout", in.VisibilityTimeout, 0, maxVisibility},
		{"WaitTimeSeconds", in.WaitTimeSeconds, 0, maxWait},
	} {
		if p.value != nil && (*p.value < p.low || *p.value > p.high) {
			return invalidParameter(reason, *p.value, p.name, p.low, p.high)
		}
	}
	return nil
}

// look takes what there is. If there is nothing it tells how long until a message that
// is there becomes visible, and what is closed when the queue changes before.
func (in *receiveMessage) look(now time.Time, q *queue) (out []received, next time.Duration, changed <-chan struct{}) {
	n := 1
	if in.MaxNumberOfMessages != nil {
		n = *in.MaxNumberOfMessages
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.take(now, n, seconds(in.VisibilityTimeout, q.settings.visibility)) {
		out = append(out, in.render(m))
	}
	next = maxWait * time.Second
	if len(q.lanes) > 0 {
		next = min(next, q.lanes[0].readyAt.Sub(now))
	}
	return out, next, q.changed.next()
}

// render shows a message with the attributes that were asked for; the MD5 is of those.
func (in *receiveMessage) render(m *stored) received {
	attributes := map[string]attributeValue{}
	for name, v := range m.sent.MessageAttributes {
		if wanted(in.MessageAttributeNames, name) {
			attributes[name] = v
		}
	}
	system := map[string]string{}
	for name, v := range m.system() {
		if v != "" && (wanted(in.AttributeNames, name) || wanted(in.MessageSystemAttributeNames, name)) {
			system[name] = v
		}
	}
	return received{
		MessageID: m.MessageID, ReceiptHandle: m.handle(), Body: m.Body, MD5OfBody: md5OfBody(m.Body),
		Attributes: system, MessageAttributes: attributes, MD5OfMessageAttributes: md5OfAttributes(attributes),
	}
}

// system gives a message's system attributes; empty ones are not there.
func (m *stored) system() map[string]string {
	return map[string]string{
		"SenderId":                         "AIDAEXAMPLE",
		"SentTimestamp":                    strconv.FormatInt(m.ReceivedAt.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.firstReceived.UnixMilli(), 10),
		"MessageGroupId":                   m.GroupID,
		"MessageDeduplicationId":           m.DedupID,
		"SequenceNumber":                   m.SequenceNumber,
		traceHeader:                        deref(m.sent.MessageSystemAttributes[traceHeader].StringValue),
	}
}

// wanted matches a name with the filters of a receive: All, a name, or prefix.*
func wanted(filters []string, name string) bool {
	for _, f := range filters {
		prefix, wild := strings.CutSuffix(f, ".*")
		if f == "All" || f == name || wild && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func seconds(given *int, otherwise time.Duration) time.Duration {
	if given == nil {
		return otherwise
	}
	return time.Duration(*given) * time.Second
}
