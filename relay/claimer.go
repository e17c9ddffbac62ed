package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
)

// claimer makes all claims, on the leader's session, which it owns while it runs. There is
// one claimer per process, so that the ids in flight can be taken out before a claim's snapshot.
type claimer struct {
	relay  *Relay
	leader *leader
	next   int // the table whose turn it is
	// suspects are rows that came back from a dead process more than once. Each goes when nothing else is in flight,
	// in turns with the others.
	suspects []rowOf
	turn     bool // the others have had theirs
	log      zerolog.Logger
}

type rowOf struct {
	table *outbox
	want  want
}

// run claims until ctx ends or the session is lost. An error is always the session's.
func (c *claimer) run(ctx context.Context) error {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	glance := time.NewTicker(glanceInterval)
	defer glance.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.relay.turn(true)
		timer.Reset(c.pause(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-ping.C:
			if err := c.ping(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		case <-glance.C:
			if err := c.leader.glance(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		case <-c.relay.work:
		case <-timer.C:
		}
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (c *claimer) ping(ctx context.Context) error {
	limited, cancel := statement(ctx)
	defer cancel()
	return c.leader.ping(limited)
}

// pause is how long nothing is due, should no signal come.
func (c *claimer) pause(now time.Time) time.Duration {
	wait := time.Hour
	for _, o := range c.relay.outboxes {
		if at := o.inbox.next(now); !at.IsZero() && !at.Equal(now) {
			wait = min(wait, max(0, at.Sub(now)))
		}
		if at := o.quiet.until(); at.After(now) {
			wait = min(wait, at.Sub(now))
		}
	}
	return wait
}

// round gives each table a turn until none has anything to claim, pinging in between.
func (c *claimer) round(ctx context.Context) error {
	for ctx.Err() == nil {
		if !c.leader.lately() {
			if err := c.ping(ctx); err != nil {
				return err
			}
		}
		if done, err := c.suspect(ctx); err != nil || !done {
			return err
		}
		busy := false
		for range c.relay.outboxes {
			o := c.relay.outboxes[c.next]
			c.next = (c.next + 1) % len(c.relay.outboxes)
			claimed, err := c.turnOf(ctx, o)
			if err != nil {
				return err
			}
			busy = busy || claimed
		}
		c.turn = true
		// With something in flight, freed wakes the round for the next suspect.
		if rows, _ := c.relay.flights.inFlight(); !busy && (len(c.suspects) == 0 || rows > 0) {
			return nil
		}
	}
	return nil
}

// suspect gives a row that is under suspicion its turn. It returns false while one waits for the others to land or is in
// flight itself, and nothing else may start.
func (c *claimer) suspect(ctx context.Context) (bool, error) {
	rows, _ := c.relay.flights.inFlight()
	if c.relay.alone.Load() && rows > 0 {
		return false, nil
	}
	c.relay.alone.Store(false)
	if len(c.suspects) == 0 || !c.turn {
		return true, nil
	}
	if rows > 0 {
		return false, nil // freed wakes the round
	}
	s := c.suspects[0]
	c.suspects = c.suspects[1:]
	c.turn = false
	ds, err := c.claim(ctx, s.table, []want{s.want}, true)
	if err != nil || len(ds) == 0 {
		return true, err
	}
	return false, nil
}

// turnOf makes one claim for a table if it has ids, room and no reason to be left alone.
func (c *claimer) turnOf(ctx context.Context, o *outbox) (bool, error) {
	now := time.Now()
	if o.quiet.until().After(now) {
		return false, nil
	}
	if err := c.release(ctx, o); err != nil || o.unreleased {
		return false, err
	}
	_, bytes := c.relay.flights.inFlight()
	if bytes >= int64(c.relay.cfg.Limits.MaxInFlightBytes) || !c.relay.open(o.table) {
		return false, nil
	}
	wants := o.inbox.pull(c.relay.cfg.Limits.BatchSize, now)
	if len(wants) == 0 {
		return false, nil
	}
	wants = c.relay.flights.split(o.table, wants)
	if len(wants) == 0 {
		return true, nil
	}
	_, err := c.claim(ctx, o, wants, false)
	return true, err
}

// release takes up what others have left in their claims of a table, before its first claim.
func (c *claimer) release(ctx context.Context, o *outbox) error {
	if !o.unreleased {
		return nil
	}
	limited, cancel := statement(ctx)
	defer cancel()
	rows, err := c.leader.release(limited, o.table, c.relay.flights.claims(), c.relay.cfg.Limits.Retry.MaxAttempts)
	if err != nil {
		if ctx.Err() != nil || sessionLost(c.leader.conn, err) {
			return fmt.Errorf("taking up claims of %s: %w", o.table.Name, err)
		}
		o.quiet.fail(time.Now(), c.log, o.table.Name, "taking up claims", err)
		return nil
	}
	o.unreleased = false
	if len(rows) == 0 {
		return nil
	}
	c.log.Warn().Str("outbox", o.table.Name).Int("rows", len(rows)).Msg("took up rows that another process left in flight")
	wants := make([]want, 0, len(rows))
	for _, row := range rows {
		if row.dies {
			c.relay.died(o.table, row.id, row.kind, "crashed", "the relay died each time while this row alone was in flight")
			continue
		}
		wants = append(wants, want{id: row.id, xid: -1, source: sourcePoller})
	}
	o.requeue(wants)
	return nil
}

// claim makes one claim and asks after the ids that did not come back. An error of the statement leaves the table
// alone for a while and keeps the ids; only a lost session is returned.
func (c *claimer) claim(ctx context.Context, o *outbox, wants []want, alone bool) ([]*delivery, error) {
	began := time.Now()
	rooms := c.relay.rooms()
	budget := c.budget()
	limited, cancel := statement(ctx)
	defer cancel()
	ds, err := c.take(limited, o.table, wants, rooms, budget, alone)
	if err == nil {
		c.leader.mark(began)
		c.relay.alone.Store(alone && len(ds) > 0)
		left := c.dispatch(o, wants, ds, rooms, &budget)
		err = c.ask(limited, o, left, rooms, asked{spent: budget <= 0, alone: alone})
		if err == nil {
			o.quiet.clear(c.log, o.table.Name)
			return ds, nil
		}
		wants = left
	}
	if ctx.Err() != nil || sessionLost(c.leader.conn, err) {
		return ds, fmt.Errorf("claiming from %s: %w", o.table.Name, err)
	}
	o.quiet.fail(time.Now(), c.log, o.table.Name, "claiming", err)
	o.requeue(wants)
	return ds, nil
}

func (c *claimer) budget() int64 {
	_, bytes := c.relay.flights.inFlight()
	return int64(c.relay.cfg.Limits.MaxInFlightBytes) - bytes
}

// take runs the claim statement.
func (c *claimer) take(ctx context.Context, t *Table, wants []want, rooms []int32, budget int64, alone bool) ([]*delivery, error) {
	ids := make([]string, len(wants))
	hot := []string{}
	byID := make(map[string]want, len(wants))
	now := time.Now()
	for i, w := range wants {
		ids[i] = w.id
		byID[w.id] = w
		if c.relay.recent.hot(t, w.id, now) {
			hot = append(hot, w.id)
		}
	}
	args := []any{ids, c.relay.instance, rooms, budget, alone, hot, c.leader.epoch}
	if t.Ordered() && t.lows() {
		lows, err := c.lows(ctx, t, ids)
		if err != nil {
			return nil, err
		}
		args = append(args, lows...)
	}
	rows, err := c.leader.conn.Query(ctx, t.sql.claim, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*delivery, error) {
		d, err := scanDelivery(row, t)
		if err != nil {
			return nil, err
		}
		w := byID[d.row.ID]
		d.source, d.lsn, d.committed, d.epoch = w.source, w.lsn, w.committed, c.leader.epoch
		return d, nil
	})
}

// lows are what is remembered of the lines that ids belong to: keys, destinations, last settled ids.
func (c *claimer) lows(ctx context.Context, t *Table, ids []string) ([]any, error) {
	keys, sinks, lows := []string{}, []int32{}, []int64{}
	if c.relay.recent.lows.Len() > 0 {
		rows, err := c.leader.conn.Query(ctx, t.sql.keys, ids)
		if err != nil {
			return nil, err
		}
		seen := map[lineKey]bool{}
		var id, key string
		var sink int
		_, err = pgx.ForEachRow(rows, []any{&id, &key, &sink}, func() error {
			k := lineKey{t, key, sink}
			if low, ok := c.relay.recent.lows.Get(k); ok && !seen[k] {
				seen[k] = true
				keys, sinks, lows = append(keys, key), append(sinks, int32(sink)), append(lows, low)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return []any{keys, sinks, lows}, nil
}

func scanDelivery(row pgx.CollectableRow, t *Table) (*delivery, error) {
	d := &delivery{table: t}
	var ordered bool
	var values []*string
	r := &d.row
	err := row.Scan(&d.claim, &r.ID, &r.Version, &d.route, &ordered, &r.OrderingKey, &r.EventID, &r.Kind, &r.Payload, &r.Headers, &values,
		&r.Attempts, &r.Unknowns, &r.Crashes, &r.Generation, &d.had, &d.size)
	if err != nil {
		return nil, err
	}
	r.Values = make(map[string]*string, len(values))
	for i, name := range t.builder.fields() {
		r.Values[name] = values[i]
	}
	if ordered && r.OrderingKey != nil {
		d.line = t.Name + "\x00" + *r.OrderingKey
	}
	return d, nil
}

// dispatch hands claimed rows to their destinations, in order; malformed ones go to the stamp as dead. It returns the
// wants that were not taken, with rooms and budget reduced by what was.
func (c *claimer) dispatch(o *outbox, wants []want, ds []*delivery, rooms []int32, budget *int64) (left []want) {
	c.relay.flights.add(ds)
	taken := make(map[string]bool, len(ds))
	bySink := make([][]*delivery, len(rooms))
	var dead []*delivery
	for _, d := range ds {
		taken[d.row.ID] = true
		*budget -= d.size
		if d.route >= 0 {
			rooms[o.table.sinks[d.route]]--
		}
		if err := c.build(d); err != nil {
			d.unsent = true
			d.verdict = verdict{kind: verdictDead, reason: rejected(err).Reason, detail: rejected(err).Detail}
			dead = append(dead, d)
			continue
		}
		sink := o.table.sinks[d.route]
		bySink[sink] = append(bySink[sink], d)
	}
	for sink, batch := range bySink {
		if len(batch) > 0 {
			c.relay.destinations[sink].enqueue(batch)
		}
	}
	if len(dead) > 0 {
		c.relay.stamper.settle(dead)
	}
	for _, w := range wants {
		if !taken[w.id] {
			left = append(left, w)
		}
	}
	return left
}

// build makes the row's message and has its destination look at it.
func (c *claimer) build(d *delivery) error {
	if d.route < 0 {
		return &Rejection{"unknown_kind", fmt.Sprintf("no route of outbox %s matches the kind %q", d.table.Name, d.row.Kind)}
	}
	pub := c.relay.destinations[d.table.sinks[d.route]].cfg.pub
	msg, err := d.table.builder.build(d.route, &d.row, c.relay.cfg.Destinations[d.table.sinks[d.route]].FIFO)
	if err != nil {
		return err
	}
	// The text is in the message now; what is kept of the row is what the stamp needs.
	d.row.Payload, d.row.Headers, d.row.Values = nil, nil, nil
	d.msg = msg
	return pub.Check(msg)
}

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
	_, err = pgx.ForEachRow(rows, []any{&a.id, &a.what, &a.in, &a.sink, &a.key}, func() error {
		c.heed(o, byID[a.id], a, how)
		return nil
	})
	return err
}

// asked is how a claim was made.
type asked struct {
	spent bool // its bytes, so that rows were left that could have gone
	alone bool // for a suspect that may go alone
}

type answer struct {
	id, what string
	in       *float64 // seconds
	sink     *int
	key      *string // of an ordered line
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
	case "settled":
		c.relay.recent.settle(o.table, w.id, w.lsn, time.Time{})
	case "gone":
		c.log.Debug().Str("outbox", o.table.Name).Str("id", w.id).Msg("row is gone")
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
	first := lockedWait
	if a.key != nil && a.sink != nil {
		line = &lineKey{o.table, *a.key, *a.sink}
		if !c.relay.flights.hasLine(*line) {
			first = lineWait
		}
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
