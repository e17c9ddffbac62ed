package relay

import (
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// recent remembers ids that were settled lately and the last settled id of each line. It is a saving, never a
// truth: the poller always asks the table, and the table wins. Safe for concurrent use.
type recent struct {
	ids  *lru.Cache[rowKey, settled]
	lows *lru.Cache[lineKey, low]
}

// lineKey names the ordering key's line at its destination.
type lineKey struct {
	table *Table
	key   string
	sink  int
}

// low is a line's last settled row, and when it was claimed: of the rows up to it nothing that was due then is unsettled.
type low struct {
	id  int64
	due string
}

type settled struct {
	lsn       uint64    // commit that brought the row, 0 if the poller did
	delivered time.Time // zero if it was settled otherwise
}

// recentSize bounds the memory at some 10 MB: an id, a key and a few words each.
const recentSize = 50_000

// deduplicationWindow is SQS's: a repeat of a deduplication id within it is dropped.
const deduplicationWindow = 5 * time.Minute

func newRecent() *recent {
	ids, err := lru.New[rowKey, settled](recentSize)
	if err != nil {
		panic(err) // only for a size below one
	}
	lows, err := lru.New[lineKey, low](recentSize)
	if err != nil {
		panic(err)
	}
	return &recent{ids: ids, lows: lows}
}

// echo says whether the stream brings a row that was settled already.
func (r *recent) echo(t *Table, id string, lsn uint64) bool {
	s, ok := r.ids.Get(rowKey{t.Name, id})
	return ok && s.lsn >= lsn
}

// hot says whether this process delivered the id within SQS's deduplication window, so that
// sending it again wants a new deduplication id.
func (r *recent) hot(t *Table, id string, now time.Time) bool {
	s, ok := r.ids.Peek(rowKey{t.Name, id})
	return ok && !s.delivered.IsZero() && now.Sub(s.delivered) < deduplicationWindow
}

func (r *recent) settle(t *Table, id string, lsn uint64, delivered time.Time) {
	key := rowKey{t.Name, id}
	if old, ok := r.ids.Peek(key); ok {
		lsn = max(lsn, old.lsn)
		if delivered.IsZero() {
			delivered = old.delivered
		}
	}
	r.ids.Add(key, settled{lsn, delivered})
}

// forgetLows drops what was known of the lines: with a lost connection commits may have been lost as well.
func (r *recent) forgetLows() { r.lows.Purge() }

// raiseLow remembers an id as its line's last settled one. Lines exist only for integer keys.
func (r *recent) raiseLow(line lineKey, id string, claimed string) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return
	}
	if old, ok := r.lows.Peek(line); !ok || n > old.id {
		r.lows.Add(line, low{n, claimed})
	}
}
