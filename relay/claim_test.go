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

func TestClaimTakesNoMoreThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.pubs["queue"].hold = make(chan struct{})
	f.start()
	var room string // of a destination of which no answer is known yet
	pgtest.Eventually(t, longEnough, func() bool {
		n := f.relay.destinations[0].room()
		room = fmt.Sprint(n)
		return n > 1
	}, "the destination is open")
	f.offer(f.ids(insertEvents, "q", nil, 1000)...)
	const claimed = `SELECT coalesce(sum(cardinality(ids)), 0)::text FROM pgrelay.claims`
	pgtest.Eventually(t, longEnough, func() bool { return f.one(claimed) == room }, "rows are claimed")
	looks := func() int { f.looks.mu.Lock(); defer f.looks.mu.Unlock(); return f.looks.look }
	f.relay.CatchUp("a round more")
	signal(f.relay.work)
	pgtest.Eventually(t, longEnough, func() bool { return looks() > 0 }, "it has gone on")
	require.Equal(t, room, f.one(claimed))
	require.Equal(t, room, f.one(`SELECT count(DISTINCT u.one)::text FROM pgrelay.claims, unnest(ids) AS u(one)`))
	close(f.pubs["queue"].hold)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 1000)
}

// clockless notes the statements that are given a time.
type clockless struct {
	mu         sync.Mutex
	statements int
	timed      []string
}

func (c *clockless) note(q pgx.TraceQueryStartData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statements++
	for _, arg := range q.Args {
		switch arg.(type) {
		case time.Time, *time.Time, []time.Time:
			c.timed = append(c.timed, q.SQL)
		}
	}
}

func TestNoStatementIsGivenTheHostsTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	c := &clockless{}
	f.relay.cfg.Conn.Tracer = &tracer{begins: c.note}
	f.exec(`INSERT INTO pgrelay.claims (outbox, instance, ids) VALUES ('pgrelay.outbox_events', gen_random_uuid(), '{1}')`) // to be released
	refusals := 0
	f.pubs["queue"].script(func(m *Message) Result { // delivered, refused for a while, refused for good
		switch {
		case m.Body == "2" && refusals == 0:
			refusals++
			return Result{Outcome: OutcomeRetry, Reason: "odd"}
		case m.Body == "3":
			return Result{Outcome: OutcomeRejected, Reason: "odd"}
		}
		return Result{Outcome: OutcomeDelivered}
	})
	ids := f.ids(insertEvents, "q", nil, 3)
	f.start()
	f.offer(ids...)
	pgtest.Eventually(t, longEnough, func() bool {
		f.offer(ids...)
		return f.one(`SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL`) == "0"
	}, "rows are settled")
	require.NoError(t, f.stop())
	require.Greater(t, c.statements, 5)
	require.Empty(t, c.timed)
	require.Equal(t, "1 dead", f.one(`SELECT count(dead_at) || ' dead' FROM pgrelay.outbox_events`))
}
