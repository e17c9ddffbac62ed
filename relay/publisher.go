package relay

import (
	"context"
	"time"
)

// Message is one outbox row in the form in which a destination gets it.
type Message struct {
	Table string // the outbox, as configured names are printed: schema.table
	RowID string // the row's key as text
	// EventID is the event_id column, else the key if it is a uuid, else schema.table:id.
	EventID    string
	Kind       string
	Body       string
	Attributes []Attribute // in the order in which they were built, names unique
	// Group is the ordering scope at the destination (SQS: message group); empty if there is none.
	Group string
	// DedupID is the event id, with the generation after a republish.
	DedupID string
	Delay   time.Duration
	// Recipient is whom this call is for, one of Addressed.Recipients; empty unless the destination is Addressed.
	Recipient string
}

// Attribute is one string attribute of a message.
type Attribute struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Outcome is what became of one message of a call.
type Outcome uint8

const (
	// OutcomeUnknown: it may or may not have arrived: timeout, lost reply, missing from the answer.
	OutcomeUnknown Outcome = iota
	// OutcomeDelivered: the destination said that it has it.
	OutcomeDelivered
	// OutcomeRetry: refused now, without fault of the message; the row's retry.
	OutcomeRetry
	// OutcomeRejected: refused for ever, by fault of the message; never retried.
	OutcomeRejected
	// OutcomeBack: the destination is at fault; the row goes back as it was.
	OutcomeBack
	// outcomeUncertain is what an unknown outcome is on a route that sends at most once. No publisher gives it.
	outcomeUncertain
)

// Result is one message's outcome. Reason is a short stable token (a metric label,
// what `dead list --reason` filters by), Detail a sentence for a person. Neither
// holds a secret or a part of the payload.
type Result struct {
	Outcome Outcome
	Reason  string
	Detail  string
}

// Fault says that the destination, not a message, is what is wrong. It pauses the
// destination and charges no row.
type Fault struct {
	Reason string // short stable token: throttled, unreachable, access_denied, queue_missing …
	Detail string // a sentence for a person: what to do
	// Throttled asks for a slower pace rather than for repair.
	Throttled bool
	Err       error
}

// Error implements error.
func (f *Fault) Error() string {
	if f.Detail == "" {
		return f.Reason
	}
	return f.Reason + ": " + f.Detail
}

// Unwrap gives the library's error.
func (f *Fault) Unwrap() error { return f.Err }

// Rejection says why a message can never be sent: it dies at once.
type Rejection struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Error implements error.
func (r *Rejection) Error() string { return r.Reason + ": " + r.Detail }

// Limits is what one call of a destination takes.
type Limits struct {
	Messages int // most messages of a call
	Bytes    int // most bytes of a call, by Publisher.Size; 0 is no limit
}

// Publisher is one destination. Check, Size, Limits and Publish are called
// concurrently, but only after Open has succeeded once.
type Publisher interface {
	// Open reaches the destination and asks it for its type and limits. It is called
	// before the first call and again after each pause, has a deadline of its own, and returns a *Fault.
	Open(ctx context.Context) error
	// Ordered says whether the destination keeps an order within a group (FIFO queue,
	// stdout). It is decided by configuration, before Open.
	Ordered() bool
	// Limits of one call.
	Limits() Limits
	// Size of a message as the destination counts it, in bytes.
	Size(m *Message) int
	// Check returns a *Rejection for a message that the destination would never take.
	Check(m *Message) error
	// Publish makes one call. It returns one result per message of the batch, in its
	// order, and a fault if the destination is at fault; results are then OutcomeBack,
	// or OutcomeUnknown where a message may have got through all the same. Every call has a
	// deadline of its own, and nobody else's; when ctx ends the outcome of what was sent is unknown.
	Publish(ctx context.Context, batch []*Message) ([]Result, *Fault)
	// Close frees connections. No call is under way.
	Close() error
}

// Addressed is a Publisher whose messages go to several recipients, each by a call of its own: mail. Its Limits take one
// message a call.
type Addressed interface {
	Publisher
	// Recipients are whom a message goes to, in their order and each once. It is called for messages that Check has taken.
	Recipients(m *Message) []string
}
