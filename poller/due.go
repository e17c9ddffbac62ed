package poller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"pgrelay/relay"
)

// lookDue offers retries and deferred rows whose time has come, and learns when the next is due.
func (p *Poller) lookDue(ctx context.Context, conn *pgx.Conn, w *watch) error {
	// First: what becomes due between the statements is found by one of them.
	var in *float64
	limited, cancel := statement(ctx)
	defer cancel()
	if err := conn.QueryRow(limited, w.table.NextDue()).Scan(&in); err != nil {
		return fmt.Errorf("asking what is due next: %w", err)
	}
	if in != nil {
		w.due(time.Now().Add(time.Duration(*in*float64(time.Second)) + time.Millisecond))
	}
	for _, look := range [][2]string{w.looks().RetryLook(), w.looks().DeferredLook()} {
		err := p.offerDue(ctx, conn, w.table, look)
		if errors.Is(err, relay.ErrNoRoom) {
			w.due(time.Now().Add(noRoomWait))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// noRoomWait is how long the rest of what is due waits when the relay has no room for it.
const noRoomWait = 100 * time.Millisecond

// offerDue offers what a look finds, page by page: rows that are due and can't go yet (locked, behind their key) stay in front of those
// that can.
func (p *Poller) offerDue(ctx context.Context, conn *pgx.Conn, t *relay.Table, look [2]string) error {
	if look[0] == "" {
		return nil
	}
	for sql, behind := look[0], []any(nil); ; sql = look[1] {
		ids, at, err := duePage(ctx, conn, sql, append([]any{p.relay.Rooms(t)}, behind...))
		if err != nil {
			return err
		}
		p.metrics.found(t.Name, lookDue, len(ids))
		if err := p.relay.Offer(ctx, t, ids); err != nil || len(ids) < relay.LookSize {
			return err
		}
		behind = []any{at, ids[len(ids)-1]}
	}
}

// duePage runs one look for what is due, and gives the time of its last row.
func duePage(ctx context.Context, conn *pgx.Conn, sql string, args []any) (ids []string, at string, err error) {
	ctx, cancel := statement(ctx)
	defer cancel()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, "", err
	}
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		ids = append(ids, id)
		return nil
	})
	return ids, at, err
}
