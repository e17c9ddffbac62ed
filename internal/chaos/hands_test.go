package chaos_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// republish runs the command for a few rows that were delivered. The ledger's entries are in its way.
func (wr *writer) republish(ctx context.Context) error {
	table := tables[wr.rnd.IntN(len(tables))]
	ids, err := wr.ids(ctx, fmt.Sprintf(`SELECT id::text FROM %[1]s WHERE id > (SELECT max(id) - 2000 FROM %[1]s) AND %[2]s
		ORDER BY random() LIMIT 3`, table, published[table]))
	if err != nil || len(ids) == 0 {
		return err
	}
	args := []string{"republish", "--table", table}
	if table == bareTable {
		args = append(args, "--force")
	}
	wr.w.hand(ctx, withIDs(args, ids)...)
	return nil
}

// deadSQL finds dead rows of some kinds.
const deadSQL = `SELECT row_id FROM pgrelay.failures WHERE outbox = 'pgrelay.outbox_events' AND kind = ANY ($1) AND dead_at IS NOT NULL AND NOT uncertain ORDER BY random()`

// decide retries or discards a few dead rows: such as hold their key, and mails that some recipients were refused.
func (wr *writer) decide(ctx context.Context) error {
	ids, err := wr.ids(ctx, deadSQL+` LIMIT 5`, []string{"f.held", "mail"})
	if err != nil || len(ids) == 0 {
		return err
	}
	wr.w.hand(ctx, withIDs([]string{"dead", []string{"retry", "retry", "discard"}[wr.rnd.IntN(3)], "--table", ownTable}, ids)...)
	return nil
}

// free retries all that hold their key.
func (w *world) free() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	wr := &writer{w: w, conn: conn}
	ids, err := wr.ids(ctx, deadSQL, []string{"f.held"})
	if err == nil && len(ids) > 0 {
		w.hand(ctx, withIDs([]string{"dead", "retry", "--table", ownTable}, ids)...)
	}
	return err
}

func (wr *writer) ids(ctx context.Context, sql string, args ...any) ([]string, error) {
	rows, err := wr.conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func withIDs(args, ids []string) []string {
	for _, id := range ids {
		args = append(args, "--id", id)
	}
	return args
}
