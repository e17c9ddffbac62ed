package relay

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

// fakePublisher answers as its functions say; without them everything is delivered at once.
type fakePublisher struct {
	limits  Limits
	opening func(context.Context) error
	answer  func(ctx context.Context, batch []*Message) ([]Result, *Fault)

	mu       sync.Mutex
	opens    int
	calls    [][]string // row ids
	inFlight int
	most     int // calls in flight at one time
}

func (p *fakePublisher) Open(ctx context.Context) error {
	p.mu.Lock()
	p.opens++
	p.mu.Unlock()
	if p.opening == nil {
		return nil
	}
	return p.opening(ctx)
}

func (p *fakePublisher) Ordered() bool        { return true }
func (p *fakePublisher) Limits() Limits       { return p.limits }
func (p *fakePublisher) Size(m *Message) int  { return len(m.Body) }
func (p *fakePublisher) Check(*Message) error { return nil }
func (p *fakePublisher) Close() error         { return nil }

func (p *fakePublisher) Publish(ctx context.Context, batch []*Message) ([]Result, *Fault) {
	ids := make([]string, len(batch))
	for i, m := range batch {
		ids[i] = m.RowID
	}
	p.mu.Lock()
	p.calls = append(p.calls, ids)
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.inFlight--
		p.mu.Unlock()
	}()
	if p.answer == nil {
		return all(batch, OutcomeDelivered), nil
	}
	return p.answer(ctx, batch)
}

// sent returns the row ids of the calls so far.
func (p *fakePublisher) sent() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([][]string(nil), p.calls...)
}

func (p *fakePublisher) opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opens
}

// all gives every message of a batch the same outcome.
func all(batch []*Message, o Outcome) []Result {
	rs := make([]Result, len(batch))
	for i := range rs {
		rs[i] = Result{Outcome: o, Reason: "because", Detail: "of something"}
	}
	return rs
}

// down is a destination at fault.
func down(_ context.Context, batch []*Message) ([]Result, *Fault) {
	return all(batch, OutcomeBack), &Fault{Reason: "unreachable", Detail: "nobody listens"}
}

// stage is a destination that runs in a bubble, with what it told the rest of the relay.
type stage struct {
	*destination
	pub    *fakePublisher
	reg    *prometheus.Registry
	fresh  atomic.Bool
	opens  atomic.Int64 // calls of opened
	cancel func()       // ends run and waits for it

	mu      sync.Mutex
	settled []*delivery
	log     bytes.Buffer
}

// begin runs a destination until the test ends. Random draws are one half.
func begin(t *testing.T, pub *fakePublisher, change func(*destinationConfig)) *stage {
	t.Helper()
	if pub.limits.Messages == 0 {
		pub.limits.Messages = 10
	}
	s := &stage{pub: pub, reg: prometheus.NewRegistry()}
	s.fresh.Store(true)
	cfg := destinationConfig{
		name: "bookings", pub: pub, concurrency: 8, rows: 160,
		pauseInitial: 250 * time.Millisecond, pauseMax: 10 * time.Second,
		retry:   retryOf(3),
		maySend: s.fresh.Load,
		settle:  s.settle,
		opened:  func() { s.opens.Add(1) },
		log:     zerolog.New(&lockedWriter{s}),
		metrics: newDestinationMetrics(s.reg),
	}
	if change != nil {
		change(&cfg)
	}
	s.destination = newDestination(cfg)
	s.breaker.rnd = func() float64 { return 0.5 }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	s.cancel = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(s.cancel)
	synctest.Wait()
	return s
}

func retryOf(attempts int) config.Retry {
	return config.Retry{
		MaxAttempts: attempts, Initial: config.Duration(time.Second), Max: config.Duration(5 * time.Minute), Multiplier: 2, Jitter: 0.2,
	}
}

// warm lets the calls in flight grow to the concurrency.
func (s *stage) warm() {
	s.destination.mu.Lock()
	s.breaker.window = s.cfg.concurrency
	s.destination.mu.Unlock()
}

func (s *stage) settle(ds []*delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = append(s.settled, ds...)
}

// outcomes waits until nothing moves, and returns the verdicts so far by row id.
func (s *stage) outcomes(t *testing.T) map[string]verdict {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]verdict{}
	for _, d := range s.settled {
		require.NotContains(t, m, d.row.ID, "settled twice")
		m[d.row.ID] = d.verdict
	}
	return m
}

// kinds is outcomes without delay and reason.
func (s *stage) kinds(t *testing.T) map[string]verdictKind {
	t.Helper()
	m := map[string]verdictKind{}
	for id, v := range s.outcomes(t) {
		m[id] = v.kind
	}
	return m
}

// kind is one row's outcome.
func (s *stage) kind(t *testing.T, id string) verdictKind {
	t.Helper()
	kinds := s.kinds(t)
	require.Contains(t, kinds, id, "not settled")
	return kinds[id]
}

// forget starts the record of settled rows anew.
func (s *stage) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = nil
}

func (s *stage) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// measured returns the metrics by name and label values.
func (s *stage) measured(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := s.reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += " " + l.GetValue()
			}
			values[f.GetName()+labels] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			values[f.GetName()+"_count"+labels] = float64(m.GetHistogram().GetSampleCount())
			values[f.GetName()+"_sum"+labels] = m.GetHistogram().GetSampleSum()
		}
	}
	return values
}

type lockedWriter struct{ s *stage }

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.log.Write(p)
}

var someTable = &Table{Name: "public.outbox"}

func row(id, line string) *delivery {
	return &delivery{table: someTable, row: Row{ID: id}, line: line, msg: &Message{RowID: id}}
}

// rows makes rows without a line, with ids that count from the first one.
func rows(first, n int) []*delivery {
	ds := make([]*delivery, n)
	for i := range ds {
		ds[i] = row(strconv.Itoa(first+i), "")
	}
	return ds
}

// ids counts from the first one, as rows does.
func ids(first, n int) []string {
	var s []string
	for i := range n {
		s = append(s, strconv.Itoa(first+i))
	}
	return s
}

// slow answers after a round trip.
func slow(d time.Duration) func(context.Context, []*Message) ([]Result, *Fault) {
	return func(ctx context.Context, batch []*Message) ([]Result, *Fault) {
		select {
		case <-time.After(d):
			return all(batch, OutcomeDelivered), nil
		case <-ctx.Done():
			return all(batch, OutcomeUnknown), nil
		}
	}
}

// pass moves the bubble's clock.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
