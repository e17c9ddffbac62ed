package poller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"pgrelay/relay"
)

// do does a visit's task. What is due goes first: it has waited longest.
func (p *Poller) do(ctx context.Context, conn *pgx.Conn, w *watch, t *task) error {
	if t.due {
		if err := p.lookDue(ctx, conn, w); err != nil {
			return err
		}
	}
	for sink := range t.sinks {
		if _, err := p.look(ctx, conn, w.table, "", only(sink)); err != nil {
			return err
		}
	}
	switch {
	case t.full:
		if err := p.lookFull(ctx, conn, w, t); err != nil {
			return err
		}
	case t.pass:
		if err := p.pass(ctx, conn, w); err != nil {
			return err
		}
	}
	if t.sweep {
		if err := p.sweep(ctx, conn, w); err != nil {
			return err
		}
		w.sweepAt = time.Now().Add(p.cfg.SweepInterval)
	}
	return nil
}

// lookDue offers retries and deferred rows whose time has come, and learns when the next is due.
func (p *Poller) lookDue(ctx context.Context, conn *pgx.Conn, w *watch) error {
	// First: what becomes due between the statements is found by one of them.
	var in *float64
	if err := conn.QueryRow(ctx, w.table.NextDue()).Scan(&in); err != nil {
		return fmt.Errorf("asking what is due next: %w", err)
	}
	if in != nil {
		w.due(time.Now().Add(time.Duration(*in*float64(time.Second)) + time.Millisecond))
	}
	for _, sql := range []string{w.table.RetryLook(), w.table.DeferredLook()} {
		if sql == "" {
			continue
		}
		ids, err := query(ctx, conn, sql, p.relay.Rooms(w.table))
		if err != nil {
			return err
		}
		p.metrics.found(w.table.Name, lookDue, len(ids))
		if err := p.relay.Offer(ctx, w.table, ids); err != nil && !errors.Is(err, relay.ErrNoRoom) {
			return err
		}
		if len(ids) == relay.LookSize {
			w.due(time.Now().Add(againSoon)) // more may be due: these are on their way by then
		}
	}
	return nil
}

const againSoon = 20 * time.Millisecond

// lookFull looks at every pending row from the beginning.
func (p *Poller) lookFull(ctx context.Context, conn *pgx.Conn, w *watch, t *task) error {
	w.mark = mark{}
	return p.marked(ctx, conn, w, func(d time.Duration) { t.took = d })
}

// pass looks at pending rows above the low-water mark.
func (p *Poller) pass(ctx context.Context, conn *pgx.Conn, w *watch) error {
	return p.marked(ctx, conn, w, func(time.Duration) {})
}

// marked looks from the mark and lets it rise.
func (p *Poller) marked(ctx context.Context, conn *pgx.Conn, w *watch, took func(time.Duration)) error {
	result, err := p.look(ctx, conn, w.table, w.mark.at, nil)
	if err != nil {
		return err
	}
	took(result.took)
	if w.table.KeyGivesOrder() {
		w.mark.looked(result)
	}
	return nil
}

// lookResult is what a look of several pages saw.
type lookResult struct {
	highest    string        // the table's highest id in the first snapshot, empty if there is none
	xmin, xmax uint64        // of the first page's snapshot and of the last one's
	whole      bool          // no destination was left out
	took       time.Duration // in the server, without waiting for room
}

// look offers pending rows above an id, page by page. sees, if given, restricts it to some destinations' rows.
func (p *Poller) look(ctx context.Context, conn *pgx.Conn, t *relay.Table, from string, sees func(sink int) bool) (r lookResult, err error) {
	r.whole = sees == nil
	for first := true; ; first = false {
		rooms, open := p.rooms(t, sees)
		r.whole = r.whole && !slices.Contains(rooms, 0)
		if !open {
			return r, nil
		}
		began := time.Now()
		args := []any{rooms}
		sql := t.FirstLook()
		if from != "" {
			sql, args = t.NextLook(), append(args, from)
		}
		ids, snap, err := page(ctx, conn, sql, args)
		if err != nil {
			return r, err
		}
		r.took += time.Since(began)
		r.xmax = snap.xmax
		if first {
			r.xmin, r.highest = snap.xmin, snap.highest
		}
		p.metrics.found(t.Name, lookPending, len(ids))
		if err := p.relay.Offer(ctx, t, ids); errors.Is(err, relay.ErrNoRoom) {
			r.whole = false // the other tables have their turn, and then this one again
			return r, nil
		} else if err != nil {
			return r, err
		}
		if len(ids) > 0 {
			from = ids[len(ids)-1]
		}
		if len(ids) < relay.LookSize {
			return r, nil
		}
	}
}

type snapshot struct {
	highest    string
	xmin, xmax uint64
}

// page runs one look; its last row is the snapshot.
func page(ctx context.Context, conn *pgx.Conn, sql string, args []any) (ids []string, snap snapshot, err error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, snap, err
	}
	var id *string
	var xmin, xmax *uint64
	_, err = pgx.ForEachRow(rows, []any{&id, &xmin, &xmax}, func() error {
		switch {
		case xmin == nil:
			ids = append(ids, *id)
		case id != nil:
			snap = snapshot{*id, *xmin, *xmax}
		default:
			snap = snapshot{"", *xmin, *xmax}
		}
		return nil
	})
	return ids, snap, err
}

// rooms are the rooms of the destinations that a look sees, and whether any of them takes rows.
func (p *Poller) rooms(t *relay.Table, sees func(sink int) bool) (rooms []int32, open bool) {
	rooms = p.relay.Rooms(t)
	for sink := range rooms {
		if sees != nil && !sees(sink) {
			rooms[sink] = 0
		}
	}
	for _, sink := range t.Sinks() {
		open = open || rooms[sink] > 0
	}
	return rooms, open
}

func only(sink int) func(int) bool { return func(s int) bool { return s == sink } }

func query(ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]string, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// sweep deletes failures whose row is gone or settled, and rows past their retention.
func (p *Poller) sweep(ctx context.Context, conn *pgx.Conn, w *watch) error {
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, w.table.OrphanedFailures())
		return err
	})
	if err != nil && !conflict(err) {
		return fmt.Errorf("deleting failures of rows that are gone: %w", err)
	}
	if !w.table.Own() || p.cfg.Retention == 0 {
		return nil
	}
	return p.retire(ctx, conn, w.table)
}

// retire deletes published rows past their retention, walking along the primary key in pages. Rows are written about in the order of
// their keys, so it ends at the first page that holds none old enough to have been published that long ago.
func (p *Poller) retire(ctx context.Context, conn *pgx.Conn, t *relay.Table) error {
	for from := int64(0); ctx.Err() == nil; {
		var last *int64
		var deleted int64
		var old bool
		if err := conn.QueryRow(ctx, retireSQL, from, p.cfg.Retention.Seconds()).Scan(&last, &deleted, &old); err != nil {
			return fmt.Errorf("deleting rows past their retention: %w", err)
		}
		p.metrics.retired(t.Name, deleted)
		if last == nil || !old {
			return nil
		}
		from = *last
	}
	return context.Cause(ctx)
}

// conflict says that somebody, a republish say, touched the same rows at that moment: the next sweep looks again.
func conflict(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "40001"
}

// retireSQL: $1 the id to go on behind, $2 seconds. The DELETE repeats the condition, as a row may be republished at that
// moment; rows that somebody has locked are left to the next sweep. Dead rows stay until a person decides.
const retireSQL = `
WITH page AS MATERIALIZED (
	SELECT o.id, o.created_at, o.published_at FROM pgrelay.outbox_events o WHERE o.id > $1 ORDER BY o.id LIMIT 1000),
old AS MATERIALIZED (
	SELECT e.id FROM pgrelay.outbox_events e JOIN page USING (id)
	 WHERE e.published_at < now() - $2::float8 * interval '1 second' FOR UPDATE OF e SKIP LOCKED),
gone AS (
	DELETE FROM pgrelay.outbox_events e USING old
	 WHERE e.id = old.id AND e.published_at < now() - $2::float8 * interval '1 second' RETURNING 1)
SELECT (SELECT max(id) FROM page), (SELECT count(*) FROM gone),
       coalesce((SELECT bool_or(created_at < now() - $2::float8 * interval '1 second') FROM page), false)`
