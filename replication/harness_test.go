package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/proctest"
)

const patience = 60 * time.Second

// received is one call of Inserted.
type received struct {
	table, id string
	xid       uint32
	lsn       uint64
	at        time.Time
}

type fakeSink struct {
	mu       sync.Mutex
	rows     []received
	catchUps []string
	onRow    func() // instead of keeping the row
}

func (f *fakeSink) Inserted(table, id string, xid uint32, lsn uint64, at time.Time) bool {
	if f.onRow != nil {
		f.onRow()
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, received{table, id, xid, lsn, at})
	return len(f.rows)%2 == 0 // the answer must not matter
}

func (f *fakeSink) CatchUp(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUps = append(f.catchUps, reason)
}

func (f *fakeSink) ids(table string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for _, r := range f.rows {
		if r.table == table {
			ids = append(ids, r.id)
		}
	}
	return ids
}

func (f *fakeSink) caughtUp() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.catchUps)
}

// rig is a stream under test with everything around it.
type rig struct {
	t        *testing.T
	db       *pgtest.Database
	cfg      Config
	timing   timing
	sink     *fakeSink
	logs     *proctest.Buffer
	registry *prometheus.Registry
	stream   *Stream
	stop     func() // ends Run and waits for it
}

// newRig makes a table `outbox` and prepares, but does not start, a stream of it.
func newRig(t *testing.T, db *pgtest.Database) *rig {
	t.Helper()
	db.Exec(t, `CREATE TABLE IF NOT EXISTS outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text)`)
	r := &rig{t: t, db: db, sink: &fakeSink{}, logs: &proctest.Buffer{}, registry: prometheus.NewRegistry(), timing: defaultTiming()}
	r.timing.retryFirst, r.timing.retryMost = 50*time.Millisecond, 400*time.Millisecond
	conn, err := pgx.ParseConfig(db.URL)
	require.NoError(t, err)
	r.cfg = Config{
		Conn: conn, Slot: "slot_" + db.Name, Publication: "pgrelay",
		Tables:  []Table{{Schema: "public", Name: "outbox", IDColumn: "id", Canonical: "outbox"}},
		Log:     zerolog.New(r.logs),
		Metrics: NewMetrics(r.registry),
	}
	return r
}

func (r *rig) start() *rig {
	r.t.Helper()
	var err error
	r.stream, err = New(r.cfg, r.sink)
	require.NoError(r.t, err)
	r.stream.timing = r.timing
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.stream.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(r.t, err)
		case <-time.After(patience):
			require.Fail(r.t, "Run did not return in time")
		}
	})
	r.t.Cleanup(func() {
		r.stop()
		if r.t.Failed() {
			r.t.Logf("log of the stream:\n%s", r.logs)
		}
	})
	return r
}

func (r *rig) connected() *rig {
	r.t.Helper()
	r.eventually("the stream is connected", func() error { return r.stream.Condition() })
	return r
}

// unavailable waits for a condition of that reason and returns its sentence.
func (r *rig) unavailable(reason string) string {
	r.t.Helper()
	var u *Unavailable
	r.eventually("the stream is unavailable: "+reason, func() error {
		err := r.stream.Condition()
		if err == nil {
			return errors.New("it is connected")
		}
		if !errors.As(err, &u) || u.Reason != reason {
			return err
		}
		return nil
	})
	return u.Detail
}

func (r *rig) eventually(msg string, cond func() error) {
	r.t.Helper()
	pgtest.Eventually(r.t, patience, cond, "%s", msg)
}

// insert adds n rows and returns their ids.
func (r *rig) insert(n int) []string {
	r.t.Helper()
	rows, err := r.db.Connect(r.t).Query(r.t.Context(), `INSERT INTO outbox (payload) SELECT 'x' FROM generate_series(1, $1) RETURNING id::text`, n)
	require.NoError(r.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(r.t, err)
	return ids
}

// arrives waits until the ids of a table have come, in this order and no others.
func (r *rig) arrives(table string, ids ...string) {
	r.t.Helper()
	r.eventually("the rows arrive", func() error {
		if got := r.sink.ids(table); !slices.Equal(got, ids) {
			return fmt.Errorf("want %v, got %v", ids, got)
		}
		return nil
	})
}

// sees waits for one row, where others may come twice: a server that stops may forget
// what was confirmed last.
func (r *rig) sees(id string) {
	r.t.Helper()
	r.eventually("row "+id+" arrives", func() error {
		if got := r.sink.ids("outbox"); !slices.Contains(got, id) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
}

// caughtUp waits for a catch-up whose reason has this part.
func (r *rig) caughtUp(part string) {
	r.t.Helper()
	r.eventually("a catch-up: "+part, func() error {
		got := r.sink.caughtUp()
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, part) }) {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}

func (r *rig) slot() SlotState {
	r.t.Helper()
	st, err := Inspect(r.t.Context(), r.db.Connect(r.t), r.cfg.Slot)
	require.NoError(r.t, err)
	return st
}

// metric is the sum over a metric's labels.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	require.NoError(r.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		var sum float64
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
	require.Failf(r.t, "no such metric", "%s", name)
	return 0
}

func query[T any](t *testing.T, db *pgtest.Database, sql string, args ...any) T {
	t.Helper()
	rows, err := db.Connect(t).Query(t.Context(), sql, args...)
	require.NoError(t, err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return v
}
