package relay

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

var guarded = &Table{Name: "public.outbox", sinks: []int{0, 1}, destinations: 2, cfg: config.Outbox{Routes: []config.Route{{Kind: "a"}, {Kind: "b"}}}}

// guarding is a guard that tries a row every second, with what it said.
func guarding() (*guard, *bytes.Buffer, *[]bool) {
	var log bytes.Buffer
	var changes []bool
	g := newGuard(zerolog.New(&log), func(*Table, int) time.Duration { return time.Second }, func(_ *Table, _ int, paused bool) { changes = append(changes, paused) })
	return g, &log, &changes
}

// ends gives a row of a route its verdict, and returns what the guard makes of it.
func (g *guard) ends(now time.Time, route int, id string, kind verdictKind, reason string) verdictKind {
	d := &delivery{table: guarded, route: route, row: Row{ID: id}, verdict: verdict{kind: kind, reason: reason, detail: "why"}}
	g.judge(now, []*delivery{d})
	return d.verdict.kind
}

// die has n rows of a route die.
func (g *guard) die(now time.Time, route, n int, reason string) {
	for i := range n {
		g.ends(now, route, fmt.Sprint("dies", i), verdictDead, reason)
	}
}

func TestRoutePausesAfterAHundredDeathsInARowOfOneReason(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		happens func(g *guard)
		paused  []bool
	}{
		"a hundred":       {func(g *guard) { g.die(now, 0, 100, "r") }, []bool{false, true, false}},
		"without a route": {func(g *guard) { g.die(now, noRoute, 100, "r") }, []bool{true, false, false}},
		"one less":        {func(g *guard) { g.die(now, 0, 99, "r") }, nil},
		"of two routes":   {func(g *guard) { g.die(now, 0, 99, "r"); g.die(now, 1, 99, "r") }, nil},
		"of two reasons":  {func(g *guard) { g.die(now, 0, 99, "r"); g.die(now, 0, 99, "s") }, nil},
		"with one that got through": {func(g *guard) {
			g.die(now, 0, 99, "r")
			g.ends(now, 0, "1", verdictDelivered, "")
			g.die(now, 0, 99, "r")
		}, nil},
		"with one of another route": {func(g *guard) {
			g.die(now, 0, 99, "r")
			g.ends(now, 1, "1", verdictDelivered, "")
			g.die(now, 0, 1, "r")
		}, []bool{false, true, false}},
		"with retries between": {func(g *guard) { g.die(now, 0, 50, "r"); g.ends(now, 0, "1", verdictRetry, "x"); g.die(now, 0, 50, "r") }, []bool{false, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, log, changes := guarding()
			c.happens(g)
			require.Equal(t, c.paused, g.paused(guarded, nil))
			if c.paused != nil {
				require.Equal(t, 1, strings.Count(log.String(), "route paused"))
				require.Equal(t, []bool{true}, *changes)
			}
		})
	}
}

func TestPausedRouteTriesOneRowAtATimeAndSparesTheOthers(t *testing.T) {
	t.Parallel()
	g, log, changes := guarding()
	now := time.Now()
	key := routeOf{guarded, 0}
	g.die(now, 0, 100, "r")
	require.Equal(t, verdictBack, g.ends(now, 0, "in flight", verdictDead, "r"))
	require.Equal(t, now.Add(time.Second), g.next())
	_, _, ok, look := g.due(now, guarded)
	require.False(t, ok || look, "not before its time")

	now = now.Add(time.Second)
	_, _, ok, look = g.due(now, guarded)
	require.True(t, look && !ok, "none is known: a look has to find one")
	require.Equal(t, []int{0}, g.wanting(guarded))
	require.True(t, g.keep(now, key, want{id: "1"}), "which is tried at once")
	require.False(t, g.keep(now, key, want{id: "2"}))
	require.Empty(t, g.wanting(guarded))
	for i, id := range []string{"1", "2"} {
		now = now.Add(time.Duration(i) * time.Second)
		_, w, ok, _ := g.due(now, guarded)
		require.True(t, ok)
		require.Equal(t, id, w.id, "each time another row")
		require.Nil(t, g.paused(guarded, &key), "open for the claim of that row")
		require.Equal(t, verdictBack, g.ends(now, 0, "another", verdictDead, "r"))
		require.Equal(t, verdictDead, g.ends(now, 0, id, verdictDead, "r"))
		_, _, ok, _ = g.due(now, guarded)
		require.False(t, ok)
	}
	g.keep(now, key, want{id: "3"})
	g.keep(now, key, want{id: "4"})
	now = now.Add(time.Second)
	_, _, _, _ = g.due(now, guarded)
	g.untried(now, key)
	_, w, ok, _ := g.due(now, guarded)
	require.True(t, ok, "one that could not be claimed costs no time")
	require.Equal(t, "4", w.id)
	require.Equal(t, []RouteState{{Outbox: "public.outbox", Route: "a", Reason: "r", Detail: "why", PausedSeconds: 3, ProbeSeconds: 1}}, g.state(now, guarded))

	g.ends(now, 0, "4", verdictDelivered, "")
	require.Nil(t, g.paused(guarded, nil))
	require.Zero(t, g.next())
	require.Equal(t, []bool{true, false}, *changes)
	require.Contains(t, log.String(), "route resumed")
}

// looking is a poller for the fixture's only table: it offers what a look finds.
type looking struct {
	*looks0
	f  *fixture
	wg sync.WaitGroup
}

// looking is the fixture's poller from now on, until the test ends.
func (f *fixture) looking() *looking {
	f.t.Helper()
	l := &looking{looks0: f.looks, f: f}
	f.relay.SetLooker(l)
	f.t.Cleanup(l.wg.Wait)
	return l
}

func (l *looking) Look(t *Table, _ int) {
	l.wg.Go(func() {
		conn, err := pgx.ConnectConfig(context.Background(), SessionConfig(l.f.relay.cfg.Conn, "pgrelay test"))
		if err != nil {
			return // the test is over
		}
		defer CloseSession(conn)
		rows, err := conn.Query(context.Background(), `SELECT id FROM (`+t.FirstLook()+`) AS look(id, xmin, xmax) WHERE xmin IS NULL`, l.f.relay.Rooms(t))
		if err != nil {
			return
		}
		if ids, err := pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			_ = l.f.relay.Offer(context.Background(), t, ids)
		}
	})
}

func TestMistakeOfARouteCostsAHundredRowsAndRetryBringsThemBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, reason, route, spoil, mend string
		answer                           func(*Message) Result
	}{
		"malformed": {kind: "f", reason: "malformed_headers", route: "f*", spoil: `UPDATE pgrelay.outbox_events SET headers = '[]'`, mend: `UPDATE pgrelay.outbox_events SET headers = NULL`},
		"no route":  {kind: "strange", reason: "unknown_kind", route: NoRoute, mend: `UPDATE pgrelay.outbox_events SET event_type = 'q'`},
		"refused": {kind: "q", reason: "refused_message", route: "q*", answer: func(*Message) Result {
			return Result{Outcome: OutcomeRejected, Reason: "refused_message"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, toQueue)
			f.pauseMax(500 * time.Millisecond) // the rows that are spared last for minutes
			l := f.looking()
			f.pubs["queue"].script(c.answer)
			const rows = 400
			ids := f.ids(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload)
				SELECT $1, 'k' || n % 7, to_jsonb(n) FROM generate_series(1, $2::int) n RETURNING id::text`, c.kind, rows)
			if c.spoil != "" {
				f.exec(c.spoil)
			}
			f.start()
			f.offer(ids...)
			other := "f"
			if c.kind == "f" {
				other = "q"
			}
			const dead = `SELECT count(*)::text FROM pgrelay.failures WHERE dead_at IS NOT NULL`
			pgtest.Eventually(t, longEnough, func() bool { return number(t, f.one(dead)) >= guardDeaths }, "a hundred are dead")
			f.offer(f.ids(insertEvents, other, nil, 20)...)
			f.pubs[map[string]string{"f": "fifo", "q": "queue"}[other]].wait(t, 20)
			pgtest.Eventually(t, longEnough, func() bool { return number(t, f.one(dead)) >= guardDeaths+3 }, "rows are tried")
			require.Less(t, number(t, f.one(dead)), int64(rows), "one by one")
			state := f.relay.State().Outboxes[0].Paused
			require.Len(t, state, 1)
			require.Equal(t, c.route, state[0].Route)
			require.Equal(t, c.reason, state[0].Reason)
			var e Explanation
			pgtest.Eventually(t, longEnough, func() error {
				// The first of all, so that none of its key is in front of it; until it is tried itself.
				e = f.explain(f.one(`SELECT id::text FROM pgrelay.outbox_events o WHERE published_at IS NULL AND dead_at IS NULL AND ordering_key IS NOT NULL ORDER BY o.id LIMIT 1`))
				if e.State != StatePaused {
					return fmt.Errorf("it says %+v", e)
				}
				return nil
			}, "explain knows of the pause")
			e.says(t, StatePaused, "Route "+c.route+" is paused", "pgrelay dead retry --table pgrelay.outbox_events --all --reason "+c.reason)

			if c.mend != "" {
				f.exec(c.mend)
			}
			f.pubs["queue"].script(nil)
			if c.route == NoRoute {
				l.Look(f.relay.Tables()[0], -1) // they have another route now, as a new configuration would have given them
			} else {
				pgtest.Eventually(t, longEnough, func() bool { return len(f.relay.State().Outboxes[0].Paused) == 0 }, "one gets through, and the route flows")
			}
			_, err := f.relay.Tables()[0].RetryDead(t.Context(), f.conn, DeadSelection{Reason: c.reason})
			require.NoError(t, err)
			f.offer(due(f, f.relay.Tables()[0].RetryLook())...)
			f.settled(0)
			require.Equal(t, "0", f.one(dead))
			require.Equal(t, rows+20, len(f.pubs["queue"].messages())+len(f.pubs["fifo"].messages()))
		})
	}
}

func TestRestartEndsTheMemoryOfAPausedRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.pauseMax(time.Hour)
	f.start()
	f.offer(f.ids(insertEvents, "strange", nil, 150)...)
	f.settled(50)
	require.Len(t, f.relay.State().Outboxes[0].Paused, 1)
	require.NoError(t, f.stop())
	f.build(toQueue)
	f.pauseMax(time.Hour)
	f.start()
	f.offer(f.ids(`SELECT id::text FROM pgrelay.outbox_events WHERE dead_at IS NULL`)...)
	f.settled(0)
	require.Empty(t, f.relay.State().Outboxes[0].Paused)
}

// paused is a fixture whose route 0 is paused for an hour, and mended: 50 rows that are well again are kept to be tried.
func paused(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, toQueue)
	f.pauseMax(time.Hour)
	f.looking()
	ids := f.ids(insertEvents, "q", nil, guardDeaths+50)
	f.exec(`UPDATE pgrelay.outbox_events SET headers = '[]'`)
	f.start()
	f.offer(ids...)
	f.settled(50)
	f.kept(0, 50)
	f.exec(`UPDATE pgrelay.outbox_events SET headers = NULL`)
	return f
}

// streak looks at what the guard knows of a route, or changes it.
func (f *fixture) streak(route int, do func(*streak)) {
	g := f.relay.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	do(g.routes[routeOf{f.relay.Tables()[0], route}])
}

// kept waits until so many rows of a route are kept to be tried.
func (f *fixture) kept(route, n int) {
	f.t.Helper()
	pgtest.Eventually(f.t, longEnough, func() (all bool) {
		f.streak(route, func(s *streak) { all = len(s.ids) == n })
		return all
	}, "what is left is kept")
}

func TestLookFindsARowToTryWhenNoneIsKeptAnyMore(t *testing.T) {
	t.Parallel()
	f := paused(t)
	f.streak(0, func(s *streak) { s.ids, s.probe = nil, time.Now() })
	signal(f.relay.work)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 50)
	require.Empty(t, f.relay.State().Outboxes[0].Paused)
}

func TestRowThatCannotBeTriedCostsTheRouteNoTime(t *testing.T) {
	t.Parallel()
	f := paused(t)
	tx, err := f.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	var first string
	f.streak(0, func(s *streak) { first = s.ids[0].id })
	_, err = tx.Exec(t.Context(), `SELECT FROM pgrelay.outbox_events WHERE id::text = $1 FOR UPDATE`, first)
	require.NoError(t, err)
	f.streak(0, func(s *streak) { s.probe = time.Now() })
	signal(f.relay.work)
	f.settled(1)
	require.NoError(t, tx.Rollback(t.Context()))
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 50)
}

func TestNothingOvertakesARowOfItsKeyThatAPausedRouteSpares(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.pauseMax(time.Hour)
	f.looking()
	f.start()
	const refused = `INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload)
		SELECT 'f', $1, '"refused"' FROM generate_series(1, $2::int) RETURNING id::text`
	f.offer(f.ids(refused, nil, guardDeaths-1)...)
	f.settled(0)
	ids := f.ids(refused, "k", 2)                                // the first of them pauses the route, the second is spared
	f.offer(append(ids, f.ids(insertEvents, "f", "k", 3)...)...) // in one claim
	f.settled(4)
	require.Len(t, f.relay.State().Outboxes[0].Paused, 1)
	require.Empty(t, f.pubs["fifo"].messages())

	f.kept(1, 4)
	f.exec(`UPDATE pgrelay.outbox_events SET payload = '"mended"' WHERE id::text = $1`, ids[1])
	f.streak(1, func(s *streak) { s.probe = time.Now() })
	signal(f.relay.work)
	f.settled(0)
	require.Equal(t, []string{"mended", "1", "2", "3"}, f.bodiesUnquoted())
}
