package poller

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"pgrelay/relay"
)

// sweep deletes failures whose row is gone or settled, and rows and ledger entries past their retention.
func (p *Poller) sweep(ctx context.Context, conn *pgx.Conn, w *watch) error {
	limited, cancel := statement(ctx)
	defer cancel()
	err := pgx.BeginTxFunc(limited, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		_, err := tx.Exec(limited, w.table.OrphanedFailures())
		return err
	})
	if err != nil && !conflict(err) {
		return fmt.Errorf("deleting failures of rows that are gone: %w", err)
	}
	if w.table.Own() && p.cfg.Retention > 0 {
		if err := p.retire(ctx, conn, w.table); err != nil {
			return err
		}
	}
	if w.table.Ledger != nil && p.cfg.Ledger > 0 {
		return p.retireLedger(ctx, conn, w.table.Ledger)
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

// retire deletes published rows past their retention, walking along the primary key in pages. Rows are written about in the order of
// their keys, so it ends at the first page that holds none old enough to have been published that long ago.
func (p *Poller) retire(ctx context.Context, conn *pgx.Conn, t *relay.Table) error {
	for from := int64(0); ctx.Err() == nil; {
		var last *int64
		var deleted int64
		var old bool
		limited, cancel := statement(ctx)
		err := conn.QueryRow(limited, retireSQL, from, p.cfg.Retention.Seconds()).Scan(&last, &deleted, &old)
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
