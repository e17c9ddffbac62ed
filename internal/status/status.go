package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"pgrelay/relay"
	"pgrelay/replication"
)

// Status is a relay's state at one moment.
type Status struct {
	Slot     Slot           `json:"slot"`
	Leader   Leader         `json:"leader"`
	Outboxes []relay.Counts `json:"outboxes"`
	// What follows only the leader knows; empty if it could not be asked. PausedRoutes are those whose rows all die alike.
	PausedDestinations []relay.DestinationState `json:"paused_destinations,omitempty"`
	PausedRoutes       []relay.RouteState       `json:"paused_routes,omitempty"`
	RefusedOutboxes    []relay.OutboxState      `json:"refused_outboxes,omitempty"`
}

// Slot is the replication slot's part of it.
type Slot struct {
	Name          string `json:"name"`
	Wanted        bool   `json:"wanted"` // false: replication.enabled is
	Exists        bool   `json:"exists"`
	Active        bool   `json:"active"`
	Lost          bool   `json:"lost"`
	LostReason    string `json:"lost_reason,omitempty"`
	LagBytes      int64  `json:"lag_bytes"`
	RetainedBytes int64  `json:"retained_bytes"`
	SafeBytes     *int64 `json:"safe_bytes"` // null: max_slot_wal_keep_size sets no limit
	// OldestWriterSeconds is the age of the oldest transaction that has written and is open, in any database: the slot retains
	// WAL from its beginning on, however small its lag. 0: none, or none that this role may see (pg_read_all_stats).
	OldestWriterSeconds float64 `json:"oldest_writer_seconds"`
}

// Leader is who relays.
type Leader struct {
	Instance string `json:"instance"` // empty: nobody has led yet
	Epoch    int64  `json:"epoch"`
	// SeenSeconds is how long ago the leader last showed itself.
	SeenSeconds float64 `json:"seen_seconds"`
	Alive       bool    `json:"alive"`
}

const oldestWriterSQL = `
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(o.since)), 0)::float8
  FROM (SELECT xact_start AS since FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL
        UNION ALL SELECT prepared FROM pg_catalog.pg_prepared_xacts) o`

// Read asks the server. slot is empty where replication is off. With an error it returns what it could read: an outbox
// that is locked or dropped hides no other.
func Read(ctx context.Context, conn *pgx.Conn, slot string, tables []*relay.Table) (Status, error) {
	var s Status
	if slot != "" {
		found, err := replication.Inspect(ctx, conn, slot)
		if err != nil {
			return s, err
		}
		s.Slot = Slot{
			Name: slot, Wanted: true, Exists: found.Exists, Active: found.Holder.PID != 0, Lost: found.Lost, LostReason: found.LostReason,
			LagBytes: found.LagBytes, RetainedBytes: found.RetainedBytes, SafeBytes: found.SafeBytes,
		}
		if err := conn.QueryRow(ctx, oldestWriterSQL).Scan(&s.Slot.OldestWriterSeconds); err != nil {
			return s, fmt.Errorf("reading the oldest transaction: %w", err)
		}
	}
	err := conn.QueryRow(ctx, `SELECT instance::text, epoch, extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM pgrelay.leader`).
		Scan(&s.Leader.Instance, &s.Leader.Epoch, &s.Leader.SeenSeconds)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return s, fmt.Errorf("reading the leader: %w", err)
	}
	s.Leader.Alive = err == nil && s.Leader.SeenSeconds < relay.AliveWithin.Seconds()
	var errs []error
	for _, t := range tables {
		c, err := t.Count(ctx, conn)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.Outboxes = append(s.Outboxes, c)
	}
	return s, errors.Join(errs...)
}
