package sqsfacts

import (
	"context"
	"maps"
	"slices"
)

// Mark says how a fact is known.
type Mark string

// The marks.
const (
	Recorded   Mark = "R" // in a recording against AWS
	Documented Mark = "D" // by AWS
	Seen       Mark = "S" // in runs of the SDK
	Unverified Mark = "U" // not known: what internal/sqstest has chosen
)

// Fact is one thing that a sender meets.
type Fact struct {
	Name       string            // unique among all
	Mark       Mark              // how it is known
	Attributes map[string]string // of the queue that it needs
	// Holds says what a server does otherwise, at a queue that is new.
	Holds func(ctx context.Context, q *Queue) error
}

// All are the facts.
func All() []Fact {
	return slices.Concat(messageFacts(), needs(), sizes(), wholeBatches(), goodBatches(), entries(), fifo(), received(), checksums())
}

var fifoQueue = map[string]string{"FifoQueue": "true"}

// fifoWith are the attributes of a FIFO queue with one more.
func fifoWith(name, value string) map[string]string {
	all := maps.Clone(fifoQueue)
	all[name] = value
	return all
}
