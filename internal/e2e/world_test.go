package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/sqstest"
)

// patience is how long a test waits for what has to happen: long, for a busy machine.
const patience = 60 * time.Second

// The queues of a world, named in its configuration queue and fifo.
const (
	standardQueue = "events"
	fifoQueue     = "events.fifo"
)

// sections are top-level keys of pgrelay.yaml, each with its value in YAML.
type sections map[string]string

// world is what surrounds the processes of one test: a database, an SQS with two queues,
// and a configuration file. Rows of kinds that begin with f go to the FIFO queue, those
// that begin with q to the standard one.
type world struct {
	t    *testing.T
	db   *pgtest.Database
	conn *pgx.Conn // the producer's
	sqs  *sqstest.TestServer
	file string // the configuration
}

// newWorld makes a world on the shared server. The sections replace its defaults.
func newWorld(t *testing.T, change sections) *world {
	t.Helper()
	return newWorldOn(t, pgtest.Migrated(t), change)
}

func newWorldOn(t *testing.T, db *pgtest.Database, change sections) *world {
	t.Helper()
	w := &world{
		t: t, db: db, conn: db.Connect(t), sqs: sqstest.Start(t),
		file: filepath.Join(t.TempDir(), "pgrelay.yaml"),
	}
	w.sqs.CreateQueue(standardQueue, nil)
	w.sqs.CreateQueue(fifoQueue, nil)
	w.configure(change)
	return w
}

const routes = `[{kind: "f*", to: fifo}, {kind: "q*", to: queue}]`

// configure writes the configuration: defaults with change in their place.
func (w *world) configure(change sections) {
	w.t.Helper()
	all := sections{
		"database":     "{url: '${DATABASE_URL}'}",
		"destinations": fmt.Sprintf("{queue: %s, fifo: %s}", w.queue(standardQueue), w.queue(fifoQueue)),
		"outboxes":     "[{table: pgrelay.outbox_events, routes: " + routes + "}]",
		"http":         "{addr: '127.0.0.1:0'}",
		"relay":        "{retry: {initial: 50ms, max: 500ms}}",
	}
	maps.Copy(all, change)
	var yaml strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&yaml, "%s: %s\n", key, all[key])
	}
	require.NoError(w.t, os.WriteFile(w.file, []byte(yaml.String()), 0o600))
}

// queue is a destination at the world's SQS; more keys may be given. Its time-out is longer than any test holds a call.
func (w *world) queue(name string, more ...string) string {
	return fmt.Sprintf("{type: sqs, queue: %s, endpoint: '%s', timeout: 10m, pause: {initial: 20ms, max: 200ms}%s}",
		name, w.sqs.URL, strings.Join(append([]string{""}, more...), ", "))
}

// exec runs a statement as the producer.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.conn.Exec(context.Background(), sql, args...)
	require.NoError(w.t, err)
}

// strings gives the first column of a query's rows.
func (w *world) strings(sql string, args ...any) []string {
	w.t.Helper()
	rows, err := w.conn.Query(context.Background(), sql, args...)
	require.NoError(w.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	return all
}

// string gives the first column of a query's only row.
func (w *world) string(sql string, args ...any) string {
	w.t.Helper()
	all := w.strings(sql, args...)
	require.Len(w.t, all, 1)
	return all[0]
}

// insert adds rows with payloads 1 to n in one transaction and returns their ids.
func (w *world) insert(kind string, n int) []string {
	w.t.Helper()
	return w.strings(`INSERT INTO pgrelay.outbox_events (event_type, payload)
		SELECT $1, to_jsonb(n) FROM generate_series(1, $2::int) n RETURNING id::text`, kind, n)
}

// arrive waits until a queue has accepted n messages and returns them all.
func (w *world) arrive(queue string, n int) []sqstest.Message {
	w.t.Helper()
	w.reach(queue, n)
	return w.sqs.Messages(queue)
}

// reach is arrive for many messages, which it does not copy.
func (w *world) reach(queue string, n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := w.sqs.Wait(ctx, queue, n)
	require.NoError(w.t, err, "%d of %d messages have arrived in %s", w.sqs.Count(queue), n, queue)
}

// settled waits until so many rows of outbox_events are pending and none is claimed.
func (w *world) settled(pending int) {
	w.t.Helper()
	w.eventually(fmt.Sprint(pending, " pending, 0 claims"), `SELECT (SELECT count(*) FROM pgrelay.outbox_events
		WHERE published_at IS NULL AND dead_at IS NULL) || ' pending, ' || (SELECT count(*) FROM pgrelay.claims) || ' claims'`)
}

// eventually waits until a query gives an answer.
func (w *world) eventually(want, sql string, args ...any) {
	w.t.Helper()
	pgtest.Eventually(w.t, patience, func() error {
		if got := w.string(sql, args...); got != want {
			return fmt.Errorf("%q instead of %q", got, want)
		}
		return nil
	}, "%s", sql)
}

// eventIDs are those of messages, in order.
func eventIDs(messages []sqstest.Message) []string {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.Attributes["event_id"].Value
	}
	return ids
}

// bodies are those of messages, in order.
func bodies(messages []sqstest.Message) []string {
	all := make([]string, len(messages))
	for i, m := range messages {
		all[i] = m.Body
	}
	return all
}
