package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestInvalidatedSlotIsReplacedOnceTheTransactionInItsWayHasEnded(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "wal_keep_size": "0", "min_wal_size": "32MB", "max_wal_size": "32MB",
	}})
	w := newWorldOn(t, server.NewMigrated(t), sections{"poller": "{interval: 100ms}"})
	p := w.stream()
	l := w.produce()
	w.flows()
	// It keeps the slot from advancing, and then from being made.
	lazy := w.db.Connect(t)
	tx, err := lazy.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', '0')`)
	require.NoError(t, err)
	w.flows()
	require.Regexp(t, `"oldest_writer_seconds": [0-9.e-]*[1-9]`, w.done("status", "--json"))
	pgtest.Eventually(t, patience, func() bool {
		w.exec(`SELECT pg_switch_wal()`)
		w.exec(`CHECKPOINT`)
		return len(p.logged("replication slot let go")) > 0
	}, "the slot is lost")
	require.Equal(t, "lost", p.logged("replication slot let go")[0]["reason"])

	isBlocked := func(e entry) bool { return e["reason"] == "slot_blocked" }
	const noStream = "no replication stream: rows are found by polling; trying again"
	pgtest.Eventually(t, patience, func() bool { return slices.ContainsFunc(p.logged(noStream), isBlocked) }, "the transaction is in the way")
	said := p.logged(noStream)
	require.Contains(t, said[slices.IndexFunc(said, isBlocked)]["error"], fmt.Sprintf("process %d", lazy.PgConn().PID()))
	w.flows()
	require.Zero(t, p.terminate())
	w.eventually("0", `SELECT count(*) FROM pg_replication_slots`) // nothing that is half made

	p = w.start()
	w.flows()
	began := time.Now()
	require.NoError(t, tx.Commit(t.Context()))
	p.says("replication stream started")
	w.took("the transaction has ended: the stream is back", began)
	l.stop()
	w.settled(0)
	p.stop()
	require.Empty(t, w.repeats(standardQueue))
}

func TestSlotOverItsBudgetIsReplacedAtTheStartAndNothingIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": slowPoller, "replication": "{max_retained_wal: 1MiB}"})
	w.exec(`CREATE TABLE busy AS SELECT 1 AS n, '' AS text`)
	w.stream().stop()
	w.insert("q", 100)
	w.exec(`INSERT INTO busy SELECT n, repeat('x', 500) FROM generate_series(1, 5000) n`)
	p := w.stream()
	for _, said := range []string{"replication slot let go", "replication slot created"} {
		require.Equal(t, "over_budget", p.says(said)["reason"])
	}
	w.arrive(standardQueue, 100)
	w.insert("q", 100)
	w.settled(0)
	p.stop()
	require.Empty(t, w.repeats(standardQueue))
}

func TestTableAddedToTheConfigurationIsCaughtUpAndStreamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": slowPoller})
	w.exec(`CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
		event_type text NOT NULL DEFAULT 'order', payload jsonb NOT NULL DEFAULT '1', published_at timestamptz)`)
	const insert = `INSERT INTO orders SELECT FROM generate_series(1, 20)`
	w.exec(insert)
	first := w.stream()
	w.exec(insert)
	first.stop()

	w.configure(sections{"poller": slowPoller, "outboxes": "[{table: orders, routes: [{kind: '*', to: fifo}]}, {table: pgrelay.outbox_events, routes: " + routes + "}]"})
	p := w.stream()
	require.Equal(t, false, p.says("publication brought about")["created"])
	require.Empty(t, p.logged("replication slot created"), "the slot is kept")
	w.arrive(fifoQueue, 40)
	w.exec(insert)
	w.arrive(fifoQueue, 60)
	w.insert("q", 10)
	w.settled(0)
	p.stop()
	require.ElementsMatch(t, w.strings(`SELECT event_id::text FROM orders`), eventIDs(w.sqs.Messages(fifoQueue)))
	require.Empty(t, w.repeats(standardQueue))
}
