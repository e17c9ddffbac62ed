package relay

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// outbox is one table at work: its ids, and whether it is left alone.
type outbox struct {
	table  *Table
	inbox  *inbox
	looker func() // asks the poller for a full look
	// unreleased says that claims of others have yet to be taken up. The claimer's alone.
	unreleased bool
	// quiet is for claims and hush for stamps that the table itself refuses.
	quiet, hush quiet
}

// requeue puts ids back that were pulled and could not be claimed. What has no room is left to the poller.
func (o *outbox) requeue(wants []want) {
	if left := o.inbox.push(wants...); len(left) > 0 {
		o.looker()
	}
}

// quiet leaves something alone for a second after an error, doubling to ten, and logs changes of state only.
// Safe for concurrent use.
type quiet struct {
	mu   sync.Mutex
	wait time.Duration
	at   time.Time
	text string
}

const (
	quietFirst = time.Second
	quietMost  = 10 * time.Second
)

func (q *quiet) fail(now time.Time, log zerolog.Logger, table, doing string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wait = min(max(quietFirst, 2*q.wait), quietMost)
	q.at = now.Add(q.wait)
	if text := PublicError(err); text != q.text {
		q.text = text
		log.Error().Str("outbox", table).Str("doing", doing).Str("error", text).Str("sqlstate", sqlState(err)).
			Msg("outbox is left alone for a while: its table refuses the relay's statement")
	}
}

func (q *quiet) clear(log zerolog.Logger, table string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wait == 0 {
		return
	}
	q.wait, q.at, q.text = 0, time.Time{}, ""
	log.Info().Str("outbox", table).Msg("outbox works again")
}

// until is the time up to which it is left alone.
func (q *quiet) until() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.at
}

// problem is the error that it is left alone for, nil if none.
func (q *quiet) problem() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.text == "" {
		return nil
	}
	return errors.New(q.text)
}
