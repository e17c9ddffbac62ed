package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// longEnough is how long a test waits for what has to happen, on a busy machine.
const longEnough = time.Minute

// recorder is a publisher that keeps what it is given and answers as the test says.
type recorder struct {
	ordered bool
	// answer gives a message's result; nil delivers. fault is asked once per call.
	mu     sync.Mutex
	answer func(m *Message) Result
	fault  func(batch []*Message) *Fault
	got    []*Message
	calls  int
	hold   chan struct{} // a call waits until it is closed
	news   chan struct{}
}

func newRecorder(ordered bool) *recorder {
	return &recorder{ordered: ordered, news: make(chan struct{}, 1)}
}

func (r *recorder) Open(context.Context) error { return nil }
func (r *recorder) Ordered() bool              { return r.ordered }
func (r *recorder) Limits() Limits             { return Limits{Messages: 10, Bytes: 1 << 20} }
func (r *recorder) Size(m *Message) int        { return len(m.Body) }
func (r *recorder) Close() error               { return nil }

func (r *recorder) Check(m *Message) error {
	if m.Body == `"refused"` {
		return &Rejection{"empty_body", "the body is refused"}
	}
	text := m.Body
	for _, a := range m.Attributes {
		text += a.Value
	}
	if !utf8.ValidString(text) {
		return &Rejection{"invalid_utf8", "it is not UTF-8"}
	}
	return nil
}

func (r *recorder) Publish(ctx context.Context, batch []*Message) ([]Result, *Fault) {
	r.mu.Lock()
	hold := r.hold
	r.calls++
	r.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return make([]Result, len(batch)), nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	results := make([]Result, len(batch))
	if r.fault != nil {
		if f := r.fault(batch); f != nil {
			for i := range results {
				results[i].Outcome = OutcomeBack
			}
			return results, f
		}
	}
	for i, m := range batch {
		results[i].Outcome = OutcomeDelivered
		if r.answer != nil {
			results[i] = r.answer(m)
		}
		if results[i].Outcome == OutcomeDelivered {
			r.got = append(r.got, m)
		}
	}
	signal(r.news)
	return results, nil
}

// mailer is a recorder whose messages go to the recipients that their body lists.
type mailer struct{ *recorder }

func (mailer) Limits() Limits { return Limits{Messages: 1} }

func (mailer) Recipients(m *Message) []string {
	var to []string
	if err := json.Unmarshal([]byte(m.Body), &to); err != nil {
		panic(err) // the test wrote it
	}
	return to
}

func (r *recorder) messages() []*Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Message(nil), r.got...)
}

func (r *recorder) bodies() []string {
	var bodies []string
	for _, m := range r.messages() {
		bodies = append(bodies, m.Body)
	}
	return bodies
}

func (r *recorder) script(answer func(m *Message) Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *recorder) wait(t *testing.T, n int) {
	t.Helper()
	pgtest.Eventually(t, longEnough, func() error {
		if got := len(r.messages()); got < n {
			return fmt.Errorf("%d of %d messages have arrived", got, n)
		}
		return nil
	}, "messages arrive")
}

// fixture is a relay over a database of its own, with one recorder behind each destination.
type fixture struct {
	t     *testing.T
	db    *pgtest.Database
	conn  *pgx.Conn
	relay *Relay
	pubs  map[string]*recorder
	looks *looks0
	stop  func() error
}

// tracer hears of the statements of the relay's sessions; either function may be missing. They are called by all sessions at once.
type tracer struct {
	begins func(q pgx.TraceQueryStartData)
	ends   func(sql string, err error)
}

type statementKey struct{}

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if tr.begins != nil {
		tr.begins(q)
	}
	return context.WithValue(ctx, statementKey{}, q.SQL)
}

func (tr *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if sql, ok := ctx.Value(statementKey{}).(string); ok && tr.ends != nil {
		tr.ends(sql, q.Err)
	}
}

// looks0 stands for the poller: it notes what it is asked for.
type looks0 struct {
	mu   sync.Mutex
	look int
	due  []time.Duration
}

func (l *looks0) Look(*Table, int) { l.mu.Lock(); l.look++; l.mu.Unlock() }
func (l *looks0) Due(_ *Table, in time.Duration) {
	l.mu.Lock()
	l.due = append(l.due, in)
	l.mu.Unlock()
}

var testLimits = config.Relay{
	BatchSize: 500, MaxInFlightBytes: 64 << 20, ShutdownTimeout: config.Duration(10 * time.Second),
	Retry: config.Retry{MaxAttempts: 3, Initial: config.Duration(20 * time.Millisecond), Max: config.Duration(100 * time.Millisecond), Multiplier: 2},
}

func newFixture(t *testing.T, outbox config.Outbox, setup ...string) *fixture {
	t.Helper()
	return newFixtureOn(t, pgtest.Migrated(t), outbox, setup...)
}

func newFixtureOn(t *testing.T, db *pgtest.Database, outbox config.Outbox, setup ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, db: db, pubs: map[string]*recorder{}, looks: &looks0{}}
	f.conn = f.db.Connect(t)
	for _, sql := range setup {
		f.exec(sql)
	}
	f.build(outbox)
	return f
}

// build makes a relay; another one for the same database is another instance.
func (f *fixture) build(outbox config.Outbox) {
	f.t.Helper()
	base, err := pgx.ParseConfig(f.db.URL)
	require.NoError(f.t, err)
	var sinks []Sink
	var destinations []Destination
	for _, name := range []string{"queue", "fifo", "mail"} {
		ordered := name == "fifo"
		if f.pubs[name] == nil {
			f.pubs[name] = newRecorder(ordered)
		}
		sink := Sink{Name: name, Ordered: ordered, FIFO: ordered, Addressed: name == "mail"}
		sinks = append(sinks, sink)
		var pub Publisher = f.pubs[name]
		if sink.Addressed {
			pub = mailer{f.pubs[name]}
		}
		destinations = append(destinations, Destination{sink, pub, config.Destination{
			Concurrency: 8, Timeout: config.Duration(longEnough), // for calls that a test holds
			Pause: config.Pause{Initial: config.Duration(10 * time.Millisecond), Max: config.Duration(50 * time.Millisecond)},
		}})
	}
	table, err := OpenTable(context.Background(), f.conn, outbox, sinks)
	require.NoError(f.t, err)
	log := zerolog.New(zerolog.NewTestWriter(f.t)).Level(zerolog.InfoLevel)
	if os.Getenv("PGRELAY_TEST_LOG") == "" {
		log = zerolog.Nop()
	}
	f.relay = New(Config{
		Conn: base, Limits: testLimits, Interval: time.Second, Tables: []*Table{table},
		Destinations: destinations, Registerer: prometheus.NewRegistry(), Log: log,
	})
	f.relay.SetLooker(f.looks)
}

// pauseMax sets every destination's pause.max, by which rows of a paused route are tried. It comes before start.
func (f *fixture) pauseMax(d time.Duration) {
	for i := range f.relay.cfg.Destinations {
		f.relay.cfg.Destinations[i].Config.Pause.Max = config.Duration(d)
	}
}

// start runs the relay until the test ends or stop is called.
func (f *fixture) start() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	r := f.relay
	go func() {
		done <- r.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}()
	var once sync.Once
	var result error
	f.stop = func() error {
		once.Do(func() { cancel(); result = <-done })
		return result
	}
	f.t.Cleanup(func() { _ = f.stop() })
	pgtest.Eventually(f.t, longEnough, func() error {
		if !r.Leads() {
			return fmt.Errorf("does not lead")
		}
		return nil
	}, "the relay leads")
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	_, err := f.conn.Exec(context.Background(), sql, args...)
	require.NoError(f.t, err)
}

func (f *fixture) ids(sql string, args ...any) []string {
	f.t.Helper()
	rows, err := f.conn.Query(context.Background(), sql, args...)
	require.NoError(f.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f.t, err)
	return ids
}

func (f *fixture) one(sql string, args ...any) string {
	f.t.Helper()
	return f.ids(sql, args...)[0]
}

// offer hands ids over as the poller would.
func (f *fixture) offer(ids ...string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	defer cancel()
	require.NoError(f.t, f.relay.Offer(ctx, f.relay.Tables()[0], ids))
}

// settled waits until so many rows of pgrelay.outbox_events are pending and nothing is claimed.
func (f *fixture) settled(pending int) {
	f.t.Helper()
	pgtest.Eventually(f.t, longEnough, func() error {
		var n, claims int
		err := f.conn.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL),
			(SELECT count(*) FROM pgrelay.claims)`).Scan(&n, &claims)
		if err == nil && (n != pending || claims != 0) {
			err = fmt.Errorf("%d pending, %d claims", n, claims)
		}
		return err
	}, "rows are settled")
}

const insertEvents = `INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload)
	SELECT $1, $2, to_jsonb(n) FROM generate_series(1, $3::int) n RETURNING id::text`

var toQueue = config.Outbox{Table: "pgrelay.outbox_events", Routes: []config.Route{{Kind: "q*", To: "queue"}, {Kind: "f*", To: "fifo"}}}
