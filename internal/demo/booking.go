package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const schema = `CREATE TABLE rooms (name text PRIMARY KEY);
INSERT INTO rooms SELECT 'room-' || n FROM generate_series(1, 20) n;
CREATE TABLE bookings (room text NOT NULL REFERENCES rooms, guest text NOT NULL)`

// booking is one business transaction with its event.
type booking struct {
	room, guest, kind string
	timed             bool
}

// statements are what its transaction is made of, up to its end.
func (b booking) statements() []string {
	return []string{
		"BEGIN",
		fmt.Sprintf("SELECT FROM rooms WHERE name = '%s' FOR UPDATE", b.room),
		fmt.Sprintf("INSERT INTO bookings VALUES ('%s', '%s')", b.room, b.guest),
		fmt.Sprintf("INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload)\n"+
			"VALUES ('%s', '%s', '{\"guest\": \"%s\"}')\nRETURNING id, event_id", b.kind, b.room, b.guest),
	}
}

// begin runs the transaction up to its end and gives the event.
func (b booking) begin(ctx context.Context, conn *pgx.Conn) (event, error) {
	e := event{key: b.room, timed: b.timed}
	statements := b.statements()
	last := len(statements) - 1
	for _, sql := range statements[:last] {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return e, fmt.Errorf("booking: %w", err)
		}
	}
	if err := conn.QueryRow(ctx, statements[last]).Scan(&e.row, &e.id); err != nil {
		return e, fmt.Errorf("booking: %w", err)
	}
	return e, nil
}

// commit runs the whole transaction and enters its event in the ledger.
func (b booking) commit(ctx context.Context, conn *pgx.Conn, l *ledger) (event, error) {
	e, err := b.begin(ctx, conn)
	if err != nil {
		return e, err
	}
	e.committed = time.Now()
	if _, err := conn.Exec(ctx, "COMMIT"); err != nil {
		return e, fmt.Errorf("booking: %w", err)
	}
	l.add(e)
	return e, nil
}
