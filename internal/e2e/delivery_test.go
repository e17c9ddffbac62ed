package e2e_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// everyEvent lists the event ids of all rows that are committed, in both outboxes.
const everyEvent = `SELECT event_id::text FROM pgrelay.outbox_events UNION ALL SELECT event_id::text FROM orders_outbox`

const partitioned = `
	CREATE TABLE orders_outbox (
		id bigserial, region text NOT NULL, event_id uuid NOT NULL DEFAULT gen_random_uuid(),
		event_type text NOT NULL, payload jsonb NOT NULL, published_at timestamptz, PRIMARY KEY (id, region)
	) PARTITION BY LIST (region);
	CREATE TABLE orders_outbox_eu PARTITION OF orders_outbox FOR VALUES IN ('eu');
	CREATE TABLE orders_outbox_us PARTITION OF orders_outbox FOR VALUES IN ('us')`

const withPartitions = "[{table: pgrelay.outbox_events, routes: " + routes + "}, {table: orders_outbox, routes: " + routes + "}]"

// ways write rows, each in its own way; they say how many they have committed.
var ways = []struct {
	name  string
	write func(ctx context.Context, w *world) int
}{
	{"one at a time", func(_ context.Context, w *world) int {
		for n := range 200 {
			w.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', to_jsonb($1::int))`, n)
		}
		return 200
	}},
	{"COPY", func(ctx context.Context, w *world) int {
		_, err := w.conn.CopyFrom(ctx, pgx.Identifier{"pgrelay", "outbox_events"}, []string{"event_type", "payload"},
			pgx.CopyFromSlice(5000, func(n int) ([]any, error) { return []any{"q", n}, nil }))
		require.NoError(w.t, err)
		return 5000
	}},
	{"through the root and straight into a partition", func(_ context.Context, w *world) int {
		w.exec(`INSERT INTO orders_outbox (region, event_type, payload) SELECT (ARRAY['eu', 'us'])[1 + n % 2], 'q', to_jsonb(n) FROM generate_series(1, 300) n`)
		w.exec(`INSERT INTO orders_outbox_us (region, event_type, payload) SELECT 'us', 'q', to_jsonb(n) FROM generate_series(1, 100) n`)
		return 400
	}},
	{"rolled back, in whole and to a savepoint", func(ctx context.Context, w *world) int {
		const insert = `INSERT INTO pgrelay.outbox_events (event_type, payload) SELECT 'q', to_jsonb(n) FROM generate_series(1, 50) n`
		tx, err := w.conn.Begin(ctx)
		require.NoError(w.t, err)
		w.exec(insert)
		require.NoError(w.t, tx.Rollback(ctx))
		tx, err = w.conn.Begin(ctx)
		require.NoError(w.t, err)
		w.exec(insert)
		savepoint, err := tx.Begin(ctx)
		require.NoError(w.t, err)
		w.exec(insert)
		require.NoError(w.t, savepoint.Rollback(ctx))
		w.exec(insert)
		require.NoError(w.t, tx.Commit(ctx))
		return 100
	}},
}

func TestCommittedRowsArriveOnceHoweverTheyWereWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"outboxes": withPartitions})
	w.exec(partitioned)
	total := 0
	write := func() {
		for _, way := range ways {
			total += way.write(t.Context(), w)
		}
	}
	write()
	p := w.stream()
	w.reach(standardQueue, total)
	write()
	w.reach(standardQueue, total)
	p.stop()
	write()
	p = w.stream()
	w.reach(standardQueue, total)
	w.settled(0)
	p.stop() // what it was about to send twice is out by now
	// Sorted, as ElementsMatch would compare each of so many with each.
	require.Equal(t, sorted(w.strings(everyEvent)), sorted(eventIDs(w.sqs.Messages(standardQueue))))
}

func sorted(ids []string) []string {
	slices.Sort(ids)
	return ids
}

func TestTransactionOfAHundredThousandRowsArrivesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": slowPoller}) // what has no room in memory waits for nobody's interval
	p := w.stream()
	const n = 100_000
	w.insert("q", n)
	for some := n / 100; some <= n; some += n / 100 {
		w.reach(standardQueue, some) // so many, each within patience
	}
	w.settled(0)
	p.stop()
	seen := make(map[string]bool, n)
	for _, id := range eventIDs(w.sqs.Messages(standardQueue)) {
		require.False(t, seen[id], id)
		seen[id] = true
	}
	for _, id := range w.strings(`SELECT event_id::text FROM pgrelay.outbox_events`) {
		require.True(t, seen[id], id)
	}
	require.Len(t, seen, n)
}
