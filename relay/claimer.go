package relay

import (
	"context"
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
	for began := time.Now(); ; {
		c.relay.turn(true)
		timer.Reset(c.pause(began))
		select {
		case <-ctx.Done():
			return nil
		case <-ping.C:
			if err := c.ping(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case <-glance.C:
			if err := c.leader.glance(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		case <-c.relay.work:
		case <-timer.C:
		}
		began = time.Now()
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

// pause is how long nothing is due after a round that began then, should no signal come. What became due since that moment
// is due at once: the round may not have seen it. What was due before and is there all the same waits for a signal.
func (c *claimer) pause(began time.Time) time.Duration {
	times := []time.Time{c.relay.guard.next()}
	for _, o := range c.relay.outboxes {
		times = append(times, o.inbox.next(began), o.quiet.until())
	}
	wait := time.Hour
	for _, at := range times {
		if at.After(began) {
			wait = min(wait, max(0, time.Until(at)))
		}
	}
	return wait
}

// round gives each table a turn until none has anything to claim.
func (c *claimer) round(ctx context.Context) error {
	for ctx.Err() == nil {
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
		if !busy && (len(c.suspects) == 0 || c.sending()) {
			return nil // the stamp of what is being sent wakes the round for the next suspect
		}
	}
	return nil
}

// suspect gives a row that is under suspicion its turn. It returns false while one waits for the others to be sent or is being
// sent itself, and nothing else may start.
func (c *claimer) suspect(ctx context.Context) (bool, error) {
	if c.relay.alone.Load() && c.sending() {
		return false, nil
	}
	c.relay.alone.Store(false)
	if len(c.suspects) == 0 || !c.turn {
		return true, nil
	}
	if c.sending() {
		return false, nil
	}
	s := c.suspects[0]
	c.suspects = c.suspects[1:]
	c.turn = false
	ds, err := c.claim(ctx, s.table, []want{s.want}, asked{alone: true})
	if err != nil || len(ds) == 0 {
		return true, err
	}
	return false, nil
}

// sending says whether a destination has a row that waits or is on the wire. Rows that have their outcome and wait for
// their stamp, which somebody's lock may hold up for hours, don't count.
func (c *claimer) sending() bool {
	for _, d := range c.relay.destinations {
		if s := d.state(); s.waiting+s.inFlight > 0 {
			return true
		}
	}
	return false
}

// turnOf makes one claim for a table if it has ids, room and no reason to be left alone. It pings before where that is due: tables
// that are locked take a second each, and several of them would otherwise cost the lead its freshness.
func (c *claimer) turnOf(ctx context.Context, o *outbox) (bool, error) {
	if !c.leader.lately() {
		if err := c.ping(ctx); err != nil {
			return false, err
		}
	}
	now := time.Now()
	if o.quiet.until().After(now) {
		return false, nil
	}
	if err := c.release(ctx, o); err != nil || o.unreleased {
		return false, err
	}
	_, bytes := c.relay.flights.inFlight()
	if bytes >= int64(c.relay.cfg.Limits.MaxInFlightBytes) || !c.relay.open(o.table) || c.relay.stamper.away.Load() {
		return false, nil
	}
	if err := c.refill(ctx, o); err != nil {
		return false, err
	}
	if tried, err := c.tryPaused(ctx, o, now); tried || err != nil {
		return true, err
	}
	wants := o.inbox.pull(c.relay.cfg.Limits.BatchSize, now)
	if len(wants) == 0 {
		return false, nil
	}
	wants = c.relay.flights.split(o.table, wants)
	if len(wants) == 0 {
		return true, nil
	}
	_, err := c.claim(ctx, o, wants, asked{})
	return true, err
}

// release takes up what others have left in their claims of a table, before its first claim.
func (c *claimer) release(ctx context.Context, o *outbox) error {
	if !o.unreleased {
		return nil
	}
	limited, cancel := statement(ctx)
	defer cancel()
	rows, err := c.leader.release(limited, o.table, c.relay.flights.held(o.table), c.relay.cfg.Limits.Retry.MaxAttempts)
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
			c.relay.died(o.table, row.id, row.kind,
				verdict{kind: verdictDead, reason: "crashed", detail: "the relay died each time while this row alone was in flight"})
			continue
		}
		wants = append(wants, want{id: row.id, xid: -1, source: sourcePoller})
	}
	o.requeue(wants)
	return nil
}

// claim makes one claim and asks after the ids that did not come back. An error of the statement leaves the table
// alone for a while and keeps the ids; only a lost session is returned.
func (c *claimer) claim(ctx context.Context, o *outbox, wants []want, how asked) ([]*delivery, error) {
	began := time.Now()
	rooms := c.relay.roomsOf(o.table, how.trying)
	budget := c.budget()
	limited, cancel := statement(ctx)
	defer cancel()
	ds, err := c.take(limited, o.table, wants, rooms, budget, how.alone)
	if err == nil {
		c.leader.mark(began)
		c.relay.alone.Store(how.alone && len(ds) > 0)
		left := c.dispatch(o, wants, ds, rooms, &budget)
		how.spent = budget <= 0
		err = c.ask(limited, o, left, rooms, how)
		if err == nil {
			o.quiet.clear(c.log, o.table.Name)
			return ds, nil
		}
		wants = left
	}
	if ctx.Err() != nil || sessionLost(c.leader.conn, err) {
		o.requeue(wants) // for the next lead, which first lets go of this claim should it have been committed
		return ds, fmt.Errorf("claiming from %s: %w", o.table.Name, err)
	}
	if RowFault(err) {
		return ds, c.narrow(ctx, o, wants, how, err)
	}
	o.quiet.fail(time.Now(), c.log, o.table.Name, "claiming", err)
	o.requeue(wants)
	return ds, nil
}

// narrow claims by halves what cannot be claimed together for one row's sake. A row that cannot be read waits, and others go on.
func (c *claimer) narrow(ctx context.Context, o *outbox, wants []want, how asked, fault error) error {
	if len(wants) > 1 {
		for _, half := range [][]want{wants[:len(wants)/2], wants[len(wants)/2:]} {
			if _, err := c.claim(ctx, o, half, how); err != nil {
				return err
			}
		}
		return nil
	}
	for _, w := range wants {
		w.wait = min(max(c.relay.cfg.Interval, 2*w.wait), unreadableMost)
		o.inbox.park(w, time.Now(), nil)
		if write, _ := c.relay.lines.line(time.Now(), o.table.Name+" claim"); write {
			c.log.Error().Str("outbox", o.table.Name).Str("id", w.id).Str("error", PublicError(fault)).Stringer("again_in", w.wait).
				Msg("row cannot be claimed; trying again, others go on")
		}
	}
	return nil
}

// tryPaused claims a row of a paused route if one is to be tried now.
func (c *claimer) tryPaused(ctx context.Context, o *outbox, now time.Time) (tried bool, err error) {
	key, w, ok, look := c.relay.guard.due(now, o.table)
	if look {
		c.relay.looker.Look(o.table, -1)
	}
	if !ok {
		return false, nil
	}
	wants := c.relay.flights.split(o.table, []want{w})
	var ds []*delivery
	if len(wants) > 0 {
		ds, err = c.claim(ctx, o, wants, asked{trying: &key})
	}
	if len(ds) == 0 {
		c.relay.guard.untried(now, key)
	}
	return true, err
}

// unreadableMost is the longest wait of a row whose claim fails: each try costs the claim of its neighbours some twenty statements.
const unreadableMost = time.Minute

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
		d.source, d.lsn, d.epoch = w.source, w.lsn, c.leader.epoch
		if !w.committed.IsZero() {
			d.committed = w.committed
		}
		return d, nil
	})
}

// lows are what is remembered of the lines that ids belong to: keys, destinations, last settled ids and when those were claimed.
func (c *claimer) lows(ctx context.Context, t *Table, ids []string) ([]any, error) {
	keys, sinks, lows, dues := []string{}, []int32{}, []int64{}, []string{}
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
				keys, sinks, lows = append(keys, key), append(sinks, int32(sink)), append(lows, low.id)
				dues = append(dues, low.due)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return []any{keys, sinks, lows, dues}, nil
}

func scanDelivery(row pgx.CollectableRow, t *Table) (*delivery, error) {
	d := &delivery{table: t}
	var ordered bool
	var values []*string
	var age *float64
	r := &d.row
	err := row.Scan(&d.claim, &r.ID, &r.Version, &d.found, &d.route, &ordered, &r.OrderingKey, &r.EventID, &r.Kind, &r.Payload, &r.Headers, &values,
		&r.Attempts, &r.Unknowns, &r.Crashes, &r.Generation, &d.had, &d.size, &d.recorded, &age, &d.claimed)
	if err != nil {
		return nil, err
	}
	if age != nil {
		d.committed = time.Now().Add(-time.Duration(*age * float64(time.Second)))
	}
	r.Values = make(map[string]*string, len(values))
	for i, name := range t.builder.fields() {
		r.Values[name] = values[i]
	}
	if ordered && d.route >= 0 && r.OrderingKey != nil {
		d.line = t.Name + "\x00" + *r.OrderingKey
	}
	return d, nil
}
