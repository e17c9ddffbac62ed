package deploytest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// statement is the SQL of a name in docs/monitoring.md.
func statement(t *testing.T, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, "docs/monitoring.md"), "<!-- "+name+" -->\n```sql\n")
	require.True(t, ok, name)
	sql, _, ok := strings.Cut(rest, "```\n<!-- end of "+name+" -->")
	require.True(t, ok, name)
	return sql
}

type slotLine struct {
	SlotName      string
	Database      *string
	Active, Lost  bool
	RetainedBytes int64
	LagBytes      int64
	SafeBytes     *int64
}

func TestSlotLagStatementSeesASlotThatNobodyReadsUntilItIsLost(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "wal_keep_size": "0", "min_wal_size": "32MB", "max_wal_size": "32MB"}})
	conn := server.NewDatabase(t).Connect(t)
	exec := func(sql string) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	ask := func() (slotLine, error) {
		rows, err := conn.Query(context.Background(), statement(t, "slot-lag SQL"))
		require.NoError(t, err)
		return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[slotLine])
	}
	_, err := ask()
	require.ErrorIs(t, err, pgx.ErrNoRows, "no slot is no data")

	exec(`SELECT pg_create_logical_replication_slot('pgrelay_shop', 'pgoutput')`)
	exec(`SELECT pg_logical_emit_message(true, 'test', repeat('x', 100000))`)
	line, err := ask()
	require.NoError(t, err)
	require.False(t, line.Active)
	require.False(t, line.Lost)
	require.Greater(t, line.LagBytes, int64(100_000))
	require.GreaterOrEqual(t, line.RetainedBytes, line.LagBytes)
	require.NotNil(t, line.SafeBytes)

	pgtest.Eventually(t, time.Minute, func() error {
		exec(`SELECT pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()`)
		exec(`CHECKPOINT`)
		if line, err = ask(); err != nil {
			return err
		}
		if !line.Lost {
			return errors.New("not lost")
		}
		return nil
	}, "the slot is lost")
	require.Zero(t, line.RetainedBytes, "0 and not NULL, as its restart_lsn is")
}

func TestOldestPendingStatementIsZeroWithoutRowsAndReadsThePartialIndexes(t *testing.T) {
	t.Parallel()
	conn := pgtest.Migrated(t).Connect(t)
	sql := statement(t, "oldest-pending SQL")
	age := func() float64 {
		var seconds float64
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&seconds))
		return seconds
	}
	insert := func(columns, values string) {
		_, err := conn.Exec(t.Context(), "INSERT INTO pgrelay.outbox_events (event_type, payload, created_at"+columns+") VALUES ('e', '1', "+values+")")
		require.NoError(t, err)
	}
	require.Zero(t, age())
	insert(", published_at", "now() - interval '1 day', now()")
	insert(", dead_at", "now() - interval '1 day', now()")
	insert(", available_at", "now() - interval '1 day', now() + interval '1 day'")
	require.Zero(t, age(), "what is settled or not due does not wait")
	insert("", "now() - interval '10 minutes'")
	insert("", "now() - interval '5 minutes'")
	require.InDelta(t, 600, age(), 60)

	_, err := conn.Exec(t.Context(), `SET enable_seqscan = off`) // what a table of ordinary size does by itself
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), "EXPLAIN "+sql)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "outbox_events_pending")
	require.Contains(t, strings.Join(plan, "\n"), "outbox_events_deferred")
}
