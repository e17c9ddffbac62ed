package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ask finds out what is to be done about ids that were not claimed.
func (c *claimer) ask(ctx context.Context, o *outbox, wants []want, rooms []int32, how asked) error {
	if len(wants) == 0 {
		return nil
	}
	ids := make([]string, len(wants))
	xids := make([]*int64, len(wants))
	byID := make(map[string]want, len(wants))
	for i, w := range wants {
		ids[i] = w.id
		byID[w.id] = w
		if w.xid >= 0 {
			xids[i] = &wants[i].xid
		}
	}
	rows, err := c.leader.conn.Query(ctx, o.table.sql.answers, ids, xids, rooms)
	if err != nil {
		return err
	}
	var a answer
	_, err = pgx.ForEachRow(rows, []any{&a.id, &a.what, &a.in, &a.sink, &a.key, &a.route}, func() error {
		c.heed(o, byID[a.id], a, how)
		return nil
	})
	return err
}

// asked is how a claim was made.
type asked struct {
	spent bool // its bytes, so that rows were left that could have gone
	alone bool // for a suspect that may go alone
	// trying is the paused route of which the claim tries a row.
	trying *routeOf
}

type answer struct {
	id, what string
	in       *float64 // seconds
	sink     *int
	key      *string // of an ordered line
	route    *int
}

const (
	earlyWait  = time.Millisecond      // a row that the stream brought before other sessions see it
	lockedWait = 50 * time.Millisecond // a row that somebody has locked, or that is behind its key
	lineWait   = 2 * time.Millisecond  // behind a key of which nothing is in flight any more
)

// heed acts on one answer.
func (c *claimer) heed(o *outbox, w want, a answer, how asked) {
	now := time.Now()
	switch a.what {
	case "held":
		// A dead row holds its line. Nobody asks again before somebody decides about that, and then a look finds the row.
	case "settled":
		c.relay.recent.settle(o.table, w.id, w.lsn, time.Time{})
	case "gone":
		c.log.Debug().Str("outbox", o.table.Name).Str("id", w.id).Msg("row is gone")
	case "unready": // nothing tells when it will be: looks do
	case "deferred", "waiting":
		if a.in != nil {
			c.relay.looker.Due(o.table, time.Duration(*a.in*float64(time.Second)))
		}
	case "early":
		w.wait = min(max(earlyWait, 2*w.wait), lockedWait)
		o.inbox.park(w, now, nil)
	case "suspect":
		if how.alone { // its turn came, and somebody has it locked or it is behind its key
			c.park(o, w, a, now)
			return
		}
		c.doubt(o, w)
	case "barred":
		if c.relay.guard.keep(now, routeOf{o.table, *a.route}, w) {
			signal(c.relay.work)
		}
	case "closed":
		c.relay.close(o, *a.sink, w)
	case "again":
		if how.spent {
			o.requeue([]want{w})
			return
		}
		c.park(o, w, a, now)
	default:
		panic(errors.New("unknown answer " + a.what)) // the statement and this list are one
	}
}

// park keeps an id that is pending and free to go, but was not taken: somebody has it locked, or it is behind its key.
func (c *claimer) park(o *outbox, w want, a answer, now time.Time) {
	var line *lineKey
	if a.key != nil && a.sink != nil {
		line = &lineKey{o.table, *a.key, *a.sink}
	}
	first := lockedWait
	switch {
	case line != nil && !c.relay.flights.hasLine(*line):
		first = lineWait
	case line == nil && w.wait == 0:
		first = earlyWait // it may have become visible or free between the claim and the question
	}
	w.wait = min(max(first, 2*w.wait), c.relay.cfg.Interval)
	o.inbox.park(w, now, line)
}

// doubt puts a row under suspicion in line for its lonely turn.
func (c *claimer) doubt(o *outbox, w want) {
	for _, s := range c.suspects {
		if s.table == o && s.want.id == w.id {
			return
		}
	}
	c.suspects = append(c.suspects, rowOf{o, w})
}

// refill asks for the next ids of lines that have run dry in memory.
func (c *claimer) refill(ctx context.Context, o *outbox) error {
	dry := o.inbox.takeDry()
	for i, line := range dry {
		ids, err := c.nextOf(ctx, o.table, line)
		if err == nil {
			wants := make([]want, len(ids))
			for i, id := range ids {
				wants[i] = want{id: id, xid: -1, source: sourcePoller}
			}
			if len(ids) == lineKept {
				o.inbox.more(line)
			}
			o.requeue(wants)
			continue
		}
		if ctx.Err() != nil || sessionLost(c.leader.conn, err) {
			return fmt.Errorf("asking for more rows of a key of %s: %w", o.table.Name, err)
		}
		o.inbox.unfilled(dry[i:])
		o.quiet.fail(time.Now(), c.log, o.table.Name, "asking for more rows of a key", err)
		return nil
	}
	return nil
}

// nextOf finds a line's first pending ids.
func (c *claimer) nextOf(ctx context.Context, t *Table, line lineKey) ([]string, error) {
	limited, cancel := statement(ctx)
	defer cancel()
	var behind *int64
	if low, ok := c.relay.recent.lows.Get(line); ok && t.lows() {
		behind = &low.id
	}
	rows, err := c.leader.conn.Query(limited, t.sql.line, line.key, line.sink, behind)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
