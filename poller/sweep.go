package poller

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"pgrelay/relay"
)

// sweep takes back what somebody else left in processing, and deletes failures whose row is gone or settled, and rows and ledger entries
// past their retention.
func (p *Poller) sweep(ctx context.Context, conn *pgx.Conn, w *watch) error {
	if err := p.takeBack(ctx, conn, w); err != nil {
		return err
	}
	limited, cancel := statement(ctx)
	defer cancel()
	err := pgx.BeginTxFunc(limited, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		_, err := tx.Exec(limited, w.table.OrphanedFailures())
		return err
	})
	if err != nil && !conflict(err) {
		return fmt.Errorf("deleting failures of rows that are gone: %w", err)
	}
	if w.table.Retention() > 0 {
		if err := p.retire(ctx, conn, w); err != nil {
			return err
		}
	}
	if w.table.Ledger != nil && p.cfg.Ledger > 0 {
		return p.retireLedger(ctx, conn, w.table.Ledger)
	}
	return nil
}

// takeBack sets back to pending what somebody else, a worker that is gone say, has been processing for too long, and has it looked for.
func (p *Poller) takeBack(ctx context.Context, conn *pgx.Conn, w *watch) error {
	sql, total := w.table.TakeBack(), int64(0)
	for more := sql != ""; more; {
		limited, cancel := statement(ctx)
		done, err := conn.Exec(limited, sql, p.cfg.ClaimTimeout.Seconds())
		cancel()
		if err != nil {
			return fmt.Errorf("taking back rows that somebody left in processing: %w", err)
		}
		total += done.RowsAffected()
		more = done.RowsAffected() == relay.LookSize
	}
	if total > 0 {
		p.cfg.Log.Warn().Str("outbox", w.table.Name).Int64("rows", total).Stringer("after", p.cfg.ClaimTimeout).
			Msg("took back rows that somebody else left in processing")
		w.want(-1)
	}
	return nil
}

// retireLedger forgets events past their retention, a thousand at a time.
func (p *Poller) retireLedger(ctx context.Context, conn *pgx.Conn, l *relay.Ledger) error {
	for ctx.Err() == nil {
		limited, cancel := statement(ctx)
		done, err := conn.Exec(limited, l.Retire(), p.cfg.Ledger.Seconds())
		cancel()
		if err != nil {
			return fmt.Errorf("deleting events of ledger %s past their retention: %w", l.Name, err)
		}
		if done.RowsAffected() < relay.LedgerPage {
			return nil
		}
	}
	return context.Cause(ctx)
}

// retire deletes settled rows past their retention, a thousand at a time. A table that refuses, because others refer to its rows say,
// keeps them, and goes on being looked at.
func (p *Poller) retire(ctx context.Context, conn *pgx.Conn, w *watch) error {
	deleting := p.retireOthers
	if w.table.Own() {
		deleting = p.retireOwn
	}
	err := deleting(ctx, conn, w.table)
	if err == nil || ctx.Err() != nil || conn.IsClosed() || !isServerError(err) {
		w.keeping = ""
		return err
	}
	if text := relay.PublicError(err); text != w.keeping {
		w.keeping = text
		p.cfg.Log.Error().Str("outbox", w.table.Name).Str("error", text).Msg("deleting rows past their retention fails; trying again at each sweep")
	}
	return nil
}

// retireOthers goes by the index of the time at which rows were settled.
func (p *Poller) retireOthers(ctx context.Context, conn *pgx.Conn, t *relay.Table) error {
	for ctx.Err() == nil {
		limited, cancel := statement(ctx)
		done, err := conn.Exec(limited, t.Retire(), t.Retention().Seconds())
		cancel()
		if err != nil {
			return fmt.Errorf("deleting rows past their retention: %w", err)
		}
		p.metrics.retired(t.Name, done.RowsAffected())
		if done.RowsAffected() < relay.RetirePage {
			return nil
		}
	}
	return context.Cause(ctx)
}

// retireOwn walks along the primary key in pages. Rows of pgrelay.outbox_events are written about in the order of
// their keys, so it ends at the first page that holds none old enough to have been published that long ago.
func (p *Poller) retireOwn(ctx context.Context, conn *pgx.Conn, t *relay.Table) error {
	for from := int64(0); ctx.Err() == nil; {
		var last *int64
		var deleted int64
		var old bool
		limited, cancel := statement(ctx)
		err := conn.QueryRow(limited, retireSQL, from, t.Retention().Seconds()).Scan(&last, &deleted, &old)
		cancel()
		if err != nil {
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
// moment; rows that somebody has locked are left to the next sweep. Dead letters stay until a person decides; a discarded one goes
// when it is as old.
const retireSQL = `
WITH page AS MATERIALIZED (
	SELECT o.id, o.created_at FROM pgrelay.outbox_events o WHERE o.id > $1 ORDER BY o.id LIMIT 1000),
old AS MATERIALIZED (
	SELECT e.id FROM pgrelay.outbox_events e JOIN page USING (id)
	 WHERE ` + retired + ` FOR UPDATE OF e SKIP LOCKED),
gone AS (
	DELETE FROM pgrelay.outbox_events e USING old WHERE e.id = old.id AND ` + retired + ` RETURNING 1)
SELECT (SELECT max(id) FROM page), (SELECT count(*) FROM gone),
       coalesce((SELECT bool_or(created_at < now() - $2::float8 * interval '1 second') FROM page), false)`

const retired = `(e.published_at < now() - $2::float8 * interval '1 second'
	  OR (e.published_at IS NULL AND e.dead_at < now() - $2::float8 * interval '1 second'
	      AND NOT EXISTS (SELECT FROM pgrelay.failures f WHERE f.outbox = 'pgrelay.outbox_events' AND f.row_id = e.id::text)))`
