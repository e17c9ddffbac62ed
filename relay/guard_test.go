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
			l := &looking{looks0: f.looks, f: f}
			f.relay.SetLooker(l)
			t.Cleanup(l.wg.Wait)
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
			pgtest.Eventually(t, longEnough, func() bool {
				// The first of all, so that none of its key is in front of it; until it is tried itself.
				e = f.explain(f.one(`SELECT id::text FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL AND ordering_key IS NOT NULL ORDER BY id LIMIT 1`))
				return e.State == StatePaused
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
	f.start()
	f.offer(f.ids(insertEvents, "strange", nil, 150)...)
	pgtest.Eventually(t, longEnough, func() bool { return len(f.relay.State().Outboxes[0].Paused) == 1 }, "the route is paused")
	f.settled(50)
	require.NoError(t, f.stop())
	f.build(toQueue)
	require.Empty(t, f.relay.State().Outboxes[0].Paused)
}
