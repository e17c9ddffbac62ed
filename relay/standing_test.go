package relay

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// counter counts the statements of the relay's sessions, without the pings.
type counter struct {
	table *Table
	n     atomic.Int64
}

func (c *counter) note(q pgx.TraceQueryStartData) {
	switch q.SQL {
	case c.table.sql.claim, c.table.sql.answers, c.table.sql.keys, c.table.sql.line, c.table.sql.stamp:
		c.n.Add(1)
	}
}

// perSecond waits until things stand still and counts.
func (c *counter) perSecond(t *testing.T) int64 {
	t.Helper()
	least := int64(1 << 40)
	for range 4 { // backoffs need a moment to grow; the quietest second counts
		before := c.n.Load()
		select {
		case <-time.After(time.Second):
		case <-t.Context().Done():
		}
		least = min(least, c.n.Load()-before)
	}
	return least
}

func counted(f *fixture) *counter {
	c := &counter{table: f.relay.Tables()[0]}
	f.relay.cfg.Conn.Tracer = &tracer{begins: c.note}
	return c
}

func TestClaimsAreFewWhileNothingCanBeClaimed(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *fixture){
		"a destination is paused": func(t *testing.T, f *fixture) {
			f.pubs["queue"].fault = func([]*Message) *Fault { return &Fault{Reason: "unreachable"} }
			f.relay.destinations[0].breaker.initial, f.relay.destinations[0].breaker.max = time.Hour, time.Hour
			f.relay.destinations[0].breaker.rnd = func() float64 { return 1 }
			f.start()
			f.offer(f.ids(insertEvents, "q", nil, 3000)...)
		},
		"a destination is full": func(t *testing.T, f *fixture) {
			f.pubs["queue"].hold = make(chan struct{})
			f.start()
			f.offer(f.ids(insertEvents, "q", nil, 3000)...)
		},
		"a row is locked": func(t *testing.T, f *fixture) {
			ids := f.ids(insertEvents, "q", nil, 3)
			tx, err := f.db.Connect(t).Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `SELECT FROM pgrelay.outbox_events WHERE id::text = $1 FOR UPDATE`, ids[0])
			require.NoError(t, err)
			f.start()
			f.offer(ids...)
		},
		"a key waits for its retry": func(t *testing.T, f *fixture) {
			ids := f.ids(insertEvents, "f", "k", 5000)
			f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 1, now() + interval '1 hour')`, ids[0])
			f.start()
			f.offer(ids...)
		},
		"a suspect is behind its key": func(t *testing.T, f *fixture) {
			ids := f.ids(insertEvents, "f", "k", 2)
			f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, crashes, next_attempt_at) VALUES
				('pgrelay.outbox_events', $1, 1, 0, now() + interval '1 hour'), ('pgrelay.outbox_events', $2, 0, 2, now())`, ids[0], ids[1])
			f.start()
			f.offer(ids...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, toQueue)
			c := counted(f)
			begin(t, f)
			require.LessOrEqual(t, c.perSecond(t), int64(12))
			if hold := f.pubs["queue"].hold; hold != nil {
				close(hold)
			}
		})
	}
}

func TestLoopDoesNotSpinForAnIDThatIsDueAndCannotGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{table: &Table{Name: "t"}, inbox: newInbox(10, func() {})}
		c := &claimer{relay: &Relay{outboxes: []*outbox{o}, guard: newGuard(zerolog.Nop(), nil, nil)}}
		began := time.Now()
		o.inbox.park(want{id: "1", wait: time.Second}, began, nil)
		require.Equal(t, time.Second, c.pause(began))
		<-time.After(time.Second) // by the bubble's clock
		require.Zero(t, c.pause(began), "the last round began before its time")
		require.Equal(t, time.Hour, c.pause(time.Now()), "a round has seen it and could not take it: a signal will come")
		o.quiet.at = time.Now().Add(time.Minute)
		require.Equal(t, time.Minute, c.pause(time.Now()))
		quiet := time.Now()
		<-time.After(time.Minute) // by the bubble's clock
		require.Zero(t, c.pause(quiet), "its quiet ended just after the round")
	})
}

// gated lets one key's messages wait, each in a call of its own.
type gated struct {
	*recorder
	key  string
	gate chan struct{}
}

func (g *gated) Limits() Limits { return Limits{Messages: 1, Bytes: 1 << 20} }

func (g *gated) Publish(ctx context.Context, batch []*Message) ([]Result, *Fault) {
	if batch[0].Group == g.key {
		select {
		case <-g.gate:
		case <-ctx.Done():
		}
	}
	return g.recorder.Publish(ctx, batch)
}

func TestHotKeyHoldsUpNoOtherAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	pub := &gated{f.pubs["fifo"], "hot", make(chan struct{})}
	f.relay.destinations[1].cfg.pub = pub
	f.relay.destinations[1].cfg.rows, f.relay.destinations[1].breaker.concurrency = 1280, 64
	f.start()
	f.offer(f.ids(insertEvents, "f", nil, 20)...)
	pub.wait(t, 20) // the destination has been seen to work, and has more than one call at a time
	f.offer(f.ids(insertEvents, "f", "hot", 3000)...)
	for n := range 100 {
		f.offer(f.ids(insertEvents, "f", fmt.Sprint("key", n), 5)...)
	}
	pub.wait(t, 520)
	require.LessOrEqual(t, f.relay.outboxes[0].inbox.size(), lineKept+2*lineRun, "a hot key does not fill the inbox")
	close(pub.gate)
	f.settledWithin(0, time.Minute)
	last := map[string]int{}
	for _, m := range pub.messages()[20:] {
		n, err := strconv.Atoi(m.Body)
		require.NoError(t, err)
		require.Equal(t, last[m.Group]+1, n, m.Group)
		last[m.Group] = n
	}
	require.Equal(t, 3000, last["hot"])
}

func TestSuspectDoesNotWaitForAStampThatSomebodyHoldsUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	ids := f.inFlight("q", 1)
	tx, err := f.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM pgrelay.outbox_events WHERE id::text = $1 FOR UPDATE`, ids[0])
	require.NoError(t, err)
	close(f.pubs["queue"].hold)
	f.pubs["queue"].wait(t, 1)
	more := f.ids(insertEvents, "q", nil, 3)
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, crashes, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 2, now())`, more[0])
	f.offer(more...)
	f.pubs["queue"].wait(t, 4)
	require.NoError(t, tx.Rollback(t.Context()))
	f.settled(0)
}

func TestRowThatCannotBeClaimedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF cardinality(NEW.ids) = 0 OR '4' = ANY (NEW.ids) THEN RAISE 'unreadable' USING ERRCODE = '22P05'; END IF; RETURN NEW; END $$`,
		`CREATE TRIGGER refuse BEFORE INSERT ON pgrelay.claims FOR EACH ROW EXECUTE FUNCTION refuse()`)
	f.start()
	f.offer(f.ids(insertEvents, "q", nil, 20)...)
	f.settled(1)
	f.exec(`DROP TRIGGER refuse ON pgrelay.claims`)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 20)
}

// settledWithin is settled with more time.
func (f *fixture) settledWithin(pending int, d time.Duration) {
	f.t.Helper()
	pgtest.Eventually(f.t, d, func() bool {
		return f.one(`SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL`) == strconv.Itoa(pending)
	}, "rows are settled")
	f.settled(pending)
}
