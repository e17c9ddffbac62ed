package relay

import (
	"crypto/sha256"

	lru "github.com/hashicorp/golang-lru/v2"
)

// refusedBy remembers which recipients of a row that is tried again refused it for good, so that they aren't asked again. Losing one costs
// another refusal. Safe for concurrent use; the row is one call's at a time.
type refusedBy struct {
	rows *lru.Cache[rowKey, refusal]
}

// refusal is of one text of a message: a corrected one is offered to all.
type refusal struct {
	text [sha256.Size]byte
	by   map[string]Result
}

func newRefusedBy() refusedBy {
	rows, err := lru.New[rowKey, refusal](triesKept)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return refusedBy{rows}
}

// of gives a recipient's refusal.
func (r refusedBy) of(d *delivery, recipient string) (Result, bool) {
	seen, _ := r.rows.Get(d.key())
	res, refused := seen.by[recipient]
	return res, refused && seen.text == sha256.Sum256([]byte(d.msg.Body))
}

func (r refusedBy) add(d *delivery, recipient string, res Result) {
	text := sha256.Sum256([]byte(d.msg.Body))
	seen, _ := r.rows.Get(d.key())
	if seen.text != text || seen.by == nil {
		seen = refusal{text, map[string]Result{}}
	}
	seen.by[recipient] = res
	r.rows.Add(d.key(), seen)
}

// forget is for a row that is settled.
func (r refusedBy) forget(k rowKey) { r.rows.Remove(k) }
