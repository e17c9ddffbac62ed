package relay

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// asking notes the ids that the relay's claims name, and those that it asks after.
type asking struct {
	table *Table
	mu    sync.Mutex
	ids   []string
}

func (a *asking) note(q pgx.TraceQueryStartData) {
	switch q.SQL {
	case a.table.sql.claim, a.table.sql.answers, a.table.sql.keys:
		a.mu.Lock()
		defer a.mu.Unlock()
		ids, _ := q.Args[0].([]string)
		a.ids = append(a.ids, ids...)
	}
}

// take gives what was noted since the last time.
func (a *asking) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := a.ids
	a.ids = nil
	return ids
}

// look offers what a full look finds, page by page as the poller does, and returns it.
func (f *fixture) look() (found []string) {
	f.t.Helper()
	table := f.relay.Tables()[0]
	for sql, from := table.FirstLook(), []any(nil); ; sql = table.NextLook() {
		rows, err := f.conn.Query(f.t.Context(), sql, append([]any{f.relay.Rooms(table)}, from...)...)
		require.NoError(f.t, err)
		var id *string
		var snapshot *uint64
		var at, last, page []string
		_, err = pgx.ForEachRow(rows, []any{&id, &snapshot, nil, &at}, func() error {
			if snapshot == nil {
				page, last = append(page, *id), at
			}
			return nil
		})
		require.NoError(f.t, err)
		f.offer(page...)
		found = append(found, page...)
		if len(page) < LookSize {
			return found
		}
		from = []any{last}
	}
}

// TestABacklogForADeadDestinationIsNeitherOfferedNorAskedFor counts what a backlog that nobody takes costs the rows of another destination.
func TestABacklogForADeadDestinationIsNeitherOfferedNorAskedFor(t *testing.T) {
	t.Parallel()
	const backlog, others, sample = 200_000, 900, 500
	f := newFixture(t, toQueue, fmt.Sprintf(`INSERT INTO pgrelay.outbox_events (event_type, payload)
		SELECT 'q', to_jsonb(n) FROM generate_series(1, %d) n`, backlog), `ANALYZE pgrelay.outbox_events`)
	asked := &asking{table: f.relay.Tables()[0]}
	f.relay.cfg.Conn.Tracer = &tracer{begins: asked.note}
	queue := f.relay.destinations[0]
	queue.breaker.initial, queue.breaker.max = time.Hour, time.Hour
	queue.breaker.rnd = func() float64 { return 1 }
	dead := true
	f.pubs["queue"].fault = func([]*Message) *Fault {
		if dead {
			return &Fault{Reason: "unreachable"}
		}
		return nil
	}
	f.start()
	f.offer(f.ids(`SELECT id::text FROM pgrelay.outbox_events o ORDER BY o.id LIMIT 3000`)...)
	pgtest.Eventually(t, longEnough, func() bool { return queue.state().reason == "unreachable" && f.relay.outboxes[0].inbox.size() == 0 }, "it pauses")
	f.settled(backlog)
	for range 2 { // by the first what was released is back in memory, and by the second it has been asked for, this once
		f.offer(f.ids(insertEvents, "f", "k0", 1)...)
		f.settled(backlog)
	}
	asked.take()

	ids := f.ids(insertEvents, "f", "k1", others)
	first := number(t, ids[0])
	pgtest.Eventually(t, longEnough, func() bool {
		for _, id := range f.look() {
			require.GreaterOrEqual(t, number(t, id), first, "a look brought a row that nobody takes")
		}
		return len(f.pubs["fifo"].messages()) == 2+others
	}, "the others arrive")
	f.settled(backlog)
	for _, id := range asked.take() {
		require.GreaterOrEqual(t, number(t, id), first, "a row that nobody takes was asked for")
	}
	require.Equal(t, 1, f.pubs["queue"].calls)

	f.cheapBesideABacklog(t, backlog)
	f.look()
	f.settled(backlog)
	require.Equal(t, "0 0", f.one(`SELECT (SELECT count(*) FROM pgrelay.failures) || ' ' || count(*) FROM pgrelay.outbox_events WHERE dead_at IS NOT NULL`))

	f.exec(`DELETE FROM pgrelay.outbox_events WHERE published_at IS NULL AND id > $1`, sample)
	f.pubs["queue"].mu.Lock()
	dead = false
	f.pubs["queue"].mu.Unlock()
	queue.update(func() { queue.breaker.until = time.Now() })
	pgtest.Eventually(t, longEnough, func() bool { f.look(); return len(f.pubs["queue"].messages()) == sample }, "the backlog drains")
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), sample)
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
}

// cheapBesideABacklog holds the statements to what they read: a claim nothing of the backlog, a look one walk over it, along the index.
func (f *fixture) cheapBesideABacklog(t *testing.T, backlog int) {
	fresh := f.ids(freshRows, "w", 50, 50)
	s := &stamping{fixture: f, table: f.relay.Tables()[0]}
	rooms := f.relay.Rooms(s.table)
	require.Zero(t, rooms[0])
	conn := s.session()
	claim := explained(t, conn, s.table.sql.claim, fresh, f.relay.instance, rooms, int64(1<<30), false, []string{}, int64(1),
		[]string{}, []int32{}, []int64{}, []string{})
	require.Empty(t, claim.scanned)
	require.LessOrEqual(t, claim.pages, 1200, claim.text) // as in a table without one
	look := explained(t, conn, s.table.sql.looks.first, rooms)
	require.Empty(t, look.scanned)
	require.LessOrEqual(t, look.pages, backlog/33, look.text) // about twice what it takes
}
