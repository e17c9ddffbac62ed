package sqstest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// dedupWindow is how long AWS remembers a deduplication id, from the acceptance of its
// first message, received and deleted or not.
const dedupWindow = 5 * time.Minute

// window is the deduplication memory of a FIFO queue.
type window struct {
	seen map[string]remembered
	// line holds the keys in the order in which they expire.
	line []string
}

type remembered struct {
	receipt receipt
	until   time.Time
}

// find returns the first send of a key that is still remembered.
func (w *window) find(now time.Time, key string) (receipt, bool) {
	for len(w.line) > 0 && !w.seen[w.line[0]].until.After(now) {
		delete(w.seen, w.line[0])
		w.line = w.line[1:]
	}
	r, ok := w.seen[key]
	return r.receipt, ok
}

func (w *window) remember(now time.Time, key string, r receipt) {
	if w.seen == nil {
		w.seen = map[string]remembered{}
	}
	w.seen[key] = remembered{receipt: r, until: now.Add(dedupWindow)}
	w.line = append(w.line, key)
}

// dedupKey is what the window compares. An explicit id goes before the body's hash,
// which leaves attributes out.
func (o *outgoing) dedupKey(set settings) (id, key string) {
	id = deref(o.MessageDeduplicationID)
	if id == "" {
		sum := sha256.Sum256([]byte(o.MessageBody))
		id = hex.EncodeToString(sum[:])
	}
	if set.dedupByGroup {
		return id, deref(o.MessageGroupID) + " " + id // no id holds a space
	}
	return id, id
}

// sequenceNumber has AWS's twenty digits, more than an integer of 64 bits holds, and grows
// within the queue.
func sequenceNumber(order uint64) string { return fmt.Sprintf("1885%016d", order) }
