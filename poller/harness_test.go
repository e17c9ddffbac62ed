package poller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
	"pgrelay/relay"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what has to happen: long, for a busy machine.
const patience = time.Minute

// taker stands for the relay: it keeps the ids that it is offered.
type taker struct {
	mu    sync.Mutex
	rooms []int32
	got   []string
	first map[string]time.Time // when an id was first offered
	// refuse says how many offers, after the first, find no room.
	refuse int
	pass   int // of them so many are taken before
}

func (k *taker) Offer(_ context.Context, _ *relay.Table, ids []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pass > 0 && len(ids) > 0 {
		k.pass--
	} else if len(k.got) > 0 && len(ids) > 0 && k.refuse > 0 {
		k.refuse--
		return relay.ErrNoRoom
	}
	for _, id := range ids {
		if _, ok := k.first[id]; !ok {
			k.first[id] = time.Now()
		}
	}
	k.got = append(k.got, ids...)
	return nil
}

// refuseNext has offers behind the next one find no room.
func (k *taker) refuseNext(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pass, k.refuse = 1, n
}

func (k *taker) Rooms(*relay.Table) []int32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]int32(nil), k.rooms...)
}

func (k *taker) offers(id string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, got := range k.got {
		if got == id {
			n++
		}
	}
	return n
}

func (k *taker) distinct() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := map[string]bool{}
	for _, id := range k.got {
		ids[id] = true
	}
	return len(ids)
}

type fixture struct {
	t     *testing.T
	db    *pgtest.Database
	conn  *pgx.Conn
	table *relay.Table
	taker *taker
	cfg   Config
	p     *Poller
}

func newFixture(t *testing.T, interval time.Duration) *fixture {
	t.Helper()
	f := &fixture{t: t, db: pgtest.Migrated(t), taker: &taker{rooms: []int32{100, 100}, first: map[string]time.Time{}}}
	f.conn = f.db.Connect(t)
	base, err := pgx.ParseConfig(f.db.URL)
	require.NoError(t, err)
	f.cfg = Config{
		Conn: base, Interval: interval, SweepInterval: time.Hour, ClaimTimeout: time.Minute,
		Registerer: prometheus.NewRegistry(), Log: zerolog.Nop(),
	}
	f.open(config.Outbox{Table: "pgrelay.outbox_events", Retention: config.Duration(time.Hour), Routes: []config.Route{{Kind: "a*", To: "a"}, {Kind: "b*", To: "b"}}})
	return f
}

// open makes an outbox the only one.
func (f *fixture) open(outbox config.Outbox) {
	f.t.Helper()
	var err error
	f.table, err = relay.OpenTable(context.Background(), f.conn, outbox, []relay.Sink{{Name: "a"}, {Name: "b"}})
	require.NoError(f.t, err)
	f.cfg.Tables = []*relay.Table{f.table}
}

// start runs a poller until the test ends.
func (f *fixture) start() {
	f.t.Helper()
	f.p = New(f.cfg, f.taker)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.p.Run(ctx) }()
	f.t.Cleanup(func() { cancel(); require.NoError(f.t, <-done) })
}

func (f *fixture) insert(kind string, n int, more string) []string {
	f.t.Helper()
	rows, err := f.conn.Query(context.Background(), fmt.Sprintf(
		`INSERT INTO pgrelay.outbox_events (event_type, payload, available_at) SELECT $1, to_jsonb(n), %s FROM generate_series(1, $2::int) n RETURNING id::text`, more), kind, n)
	require.NoError(f.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f.t, err)
	return ids
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	_, err := f.conn.Exec(context.Background(), sql, args...)
	require.NoError(f.t, err)
}

func (f *fixture) offered(n int) {
	f.t.Helper()
	pgtest.Eventually(f.t, patience, func() error {
		if got := f.taker.distinct(); got != n {
			return fmt.Errorf("%d of %d ids have been offered", got, n)
		}
		return nil
	}, "ids are offered")
}

// notBefore says that an id was first offered at the time that a query gives, or later.
func (f *fixture) notBefore(id, query string) {
	f.t.Helper()
	var at time.Time
	require.NoError(f.t, f.conn.QueryRow(context.Background(), query, id).Scan(&at))
	f.taker.mu.Lock()
	defer f.taker.mu.Unlock()
	require.False(f.t, f.taker.first[id].Before(at), "%s is before %s", f.taker.first[id], at)
}
