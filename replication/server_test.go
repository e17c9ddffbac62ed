package replication

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// What follows needs a server that nobody else uses: transactions that stay open, or
// restarts. The tests of one server run one after the other.

func TestOnAServerWithOpenTransactionsAndRestarts(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{
		"max_prepared_transactions": "2", "wal_sender_timeout": "0"}}) // a server that stops waits for its walsenders for ever
	t.Run("a slot blocked by an open transaction names it and leaves nothing behind", func(t *testing.T) { slotBlocked(t, server) })
	t.Run("a slot over its budget is replaced", func(t *testing.T) { slotOverBudget(t, server) })
	t.Run("a server that restarts or crashes is reconnected to", func(t *testing.T) { serverRestarts(t, server) })
}

func TestOnAServerThatIsShortOfEverything(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{
		"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1",
		"max_slot_wal_keep_size": "1MB", "wal_keep_size": "0", "min_wal_size": "32MB", "max_wal_size": "32MB"}})
	t.Run("no logical WAL is named", func(t *testing.T) { noLogicalWAL(t, server) })
	server.NewDatabase(t).Exec(t, `ALTER SYSTEM SET wal_level = 'logical'`)
	server.Restart(t)
	t.Run("no free slot and no free sender are named", func(t *testing.T) { noFreeSlot(t, server) })
	t.Run("a lost slot shows and is replaced", func(t *testing.T) { slotLost(t, server) })
}

func slotBlocked(t *testing.T, server *pgtest.Server) {
	r := newRig(t, server.NewDatabase(t))
	r.timing.createWithin = 2 * time.Second
	// In another database: it is in the way all the same.
	cfg, err := pgx.ParseConfig(server.NewDatabase(t).URL)
	require.NoError(t, err)
	cfg.RuntimeParams["application_name"] = "lazy psql"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { closeConn(conn.PgConn()) })
	_, err = conn.Exec(t.Context(), `BEGIN; SELECT pg_current_xact_id()`)
	require.NoError(t, err)

	r.start()
	detail := r.unavailable(ReasonSlotBlocked)
	require.Contains(t, detail, fmt.Sprintf("process %d (lazy psql) from 127.0.0.1, open since 20", conn.PgConn().PID()))
	r.stop()
	require.False(t, r.slot().Exists)
	require.Zero(t, query[int64](t, r.db, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, applicationName))

	_, err = conn.Exec(t.Context(), `PREPARE TRANSACTION 'forgotten'`)
	require.NoError(t, err)
	r.start()
	r.eventually("the prepared transaction is named", func() error {
		if d := r.unavailable(ReasonSlotBlocked); !strings.Contains(d, `prepared transaction "forgotten"`) {
			return fmt.Errorf("%s", d)
		}
		return nil
	})
	_, err = conn.Exec(t.Context(), `COMMIT PREPARED 'forgotten'`)
	require.NoError(t, err)
	r.connected()
}

func slotOverBudget(t *testing.T, server *pgtest.Server) {
	r := newRig(t, server.NewDatabase(t))
	r.db.Exec(t, `CREATE TABLE busy (x text)`)
	fill := func() { r.db.Exec(t, `INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 3000)`) }
	r.cfg.MaxRetainedWAL = 2 << 20
	r.timing.createWithin = 2 * time.Second
	r.timing.watchEvery = 100 * time.Millisecond
	r.start().connected().stop()
	fill()
	require.Greater(t, r.slot().RetainedBytes, r.cfg.MaxRetainedWAL)
	r.start().caughtUp("slot created: over_budget")

	// An open transaction keeps the WAL from going although we confirm everything.
	tx, err := r.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO outbox DEFAULT VALUES`)
	require.NoError(t, err)
	fill()
	r.eventually("the slot is let go", func() error {
		if st := r.slot(); st.Exists && st.RetainedBytes > r.cfg.MaxRetainedWAL {
			return fmt.Errorf("%d bytes retained", st.RetainedBytes)
		}
		return nil
	})
	require.NoError(t, tx.Commit(t.Context()))
	r.connected()
}

func serverRestarts(t *testing.T, server *pgtest.Server) {
	r := newRig(t, server.NewDatabase(t)).start().connected()
	r.arrives("outbox", r.insert(1)...)
	writer, written := r.db.Connect(t), make(chan struct{})
	go func() {
		defer close(written)
		for _, err := writer.Exec(t.Context(), `SELECT`); err == nil; {
			_, err = writer.Exec(t.Context(), `INSERT INTO outbox SELECT FROM generate_series(1, 100)`)
		}
	}()
	r.eventually("rows stream", func() error {
		if n := len(r.sink.ids("outbox")); n < 1000 {
			return fmt.Errorf("%d rows", n)
		}
		return nil
	})
	server.Restart(t) // ends only when the walsender has, and that when everything is confirmed
	<-written
	require.NotContains(t, r.logs.String(), errSilent.Error(), "the server ended by itself, not because the stream was given up")
	r.sees(r.insert(1)[0])
	server.Kill(t)
	r.eventually("the loss is noticed", func() error {
		if r.stream.Condition() == nil {
			return fmt.Errorf("still connected")
		}
		return nil
	})
	server.Start(t)
	r.connected()
	r.sees(r.insert(1)[0])
	require.GreaterOrEqual(t, len(r.sink.caughtUp()), 3)
}

func noLogicalWAL(t *testing.T, server *pgtest.Server) {
	r := newRig(t, server.NewDatabase(t)).start()
	require.Contains(t, r.unavailable(ReasonWALLevel), "wal_level")
	require.Zero(t, query[int64](t, r.db, `SELECT count(*) FROM pg_publication`))
	require.Empty(t, r.sink.caughtUp())
}

func noFreeSlot(t *testing.T, server *pgtest.Server) {
	r := newRig(t, server.NewDatabase(t))
	r.db.Exec(t, `SELECT pg_create_physical_replication_slot('taken')`)
	r.start()
	require.Contains(t, r.unavailable(ReasonSlots), "max_replication_slots")
	r.stop()
	r.db.Exec(t, `SELECT pg_drop_replication_slot('taken')`)
	var sender *pgconn.PgConn
	r.eventually("the only sender is ours", func() (err error) {
		sender, err = pgconn.ConnectConfig(t.Context(), streamConfig(r.cfg.Conn))
		return err
	})
	r.start()
	require.Contains(t, r.unavailable(ReasonSenders), "max_wal_senders")
	closeConn(sender)
	r.connected().stop()
	require.NoError(t, Drop(t.Context(), r.db.Connect(t), r.cfg.Slot))
}

func slotLost(t *testing.T, server *pgtest.Server) {
	r := newRig(t, server.NewDatabase(t)).start().connected()
	require.NotNil(t, r.slot().SafeBytes)
	r.stop()
	for range 3 {
		r.db.Exec(t, `SELECT pg_switch_wal()`)
		r.db.Exec(t, `CHECKPOINT`)
	}
	st := r.slot()
	require.True(t, st.Lost)
	require.Empty(t, st.RestartLSN)
	r.start().caughtUp("slot created: lost")
	r.connected()
	r.arrives("outbox", r.insert(1)...)
	require.EqualValues(t, 2, r.metric("pgrelay_slot_created_total"))
}
