package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// blocking is an outbox whose routes say on_dead: block.
func blocking(o config.Outbox) config.Outbox {
	routes := append([]config.Route(nil), o.Routes...)
	for i := range routes {
		routes[i].OnDead = config.OnDeadBlock
	}
	o.Routes = routes
	return o
}

var toFIFO = blocking(config.Outbox{Table: "pgrelay.outbox_events", Routes: []config.Route{{Kind: "f*", To: "fifo"}}})

// refusing refuses messages with a body for good.
func refusing(body string) func(*Message) Result {
	return func(m *Message) Result {
		if unquoted(m.Body) == body {
			return Result{Outcome: OutcomeRejected, Reason: "refused_message"}
		}
		return Result{Outcome: OutcomeDelivered}
	}
}

// unheld waits until the relay has no id in memory and no claim: what it was offered is decided.
func (f *fixture) unheld() {
	f.t.Helper()
	pgtest.Eventually(f.t, longEnough, func() bool {
		rows, _ := f.relay.flights.inFlight()
		return rows == 0 && f.relay.outboxes[0].inbox.size() == 0
	}, "the relay has decided what it was offered")
}

func TestDeadRowOfABlockingRouteHoldsItsKeyUntilItIsRetriedOrDiscarded(t *testing.T) {
	t.Parallel()
	for _, k := range outboxKinds {
		if !k.ordered {
			continue
		}
		for _, way := range []string{"retried", "discarded"} {
			t.Run(k.name+" "+way, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, blocking(k.outbox), k.ddl...)
				f.pubs["fifo"].script(refusing("bad"))
				before, bad, behind, other := f.row(&k, "before", "7"), f.row(&k, "bad", "7"), f.row(&k, "behind", "7"), f.row(&k, "other", "8")
				f.start()
				f.offer(behind, other, bad, before)
				f.pubs["fifo"].wait(t, 2)
				f.waitPending(&k, "1")
				require.NoError(t, f.stop())
				f.build(blocking(k.outbox)) // what is held is no matter of memory
				f.start()
				f.offer(behind)
				f.unheld()
				table := f.relay.Tables()[0]
				require.Empty(t, first(f, table.FirstLook(), f.relay.rooms()), "a look leaves out what is held")
				require.Empty(t, due(f, table.DeferredLook()))
				f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ($1, $2, 1, now())`, table.Name, behind)
				require.Empty(t, due(f, table.RetryLook()), "nor does one for retries that are due find it")
				require.ElementsMatch(t, []string{"before", "other"}, f.bodiesUnquoted())

				e := f.explain(behind)
				e.says(t, StateBehind, "Row "+bad, "on_dead: block", "retried or discarded")
				require.Equal(t, bad, e.HeldBy.ID)
				e.HeldBy.says(t, StateDead, "refused_message", "pgrelay dead retry", "pgrelay dead discard")

				f.pubs["fifo"].script(nil)
				want := []string{"behind"}
				change := table.DiscardDead
				if way == "retried" {
					want, change = []string{"bad", "behind"}, table.RetryDead
				}
				n, err := change(t.Context(), f.conn, DeadSelection{IDs: []string{bad}})
				require.NoError(t, err)
				require.Equal(t, 1, n)
				f.offer(append(first(f, table.FirstLook(), f.relay.rooms()), append(due(f, table.DeferredLook()), due(f, table.RetryLook())...)...)...)
				f.pubs["fifo"].wait(t, 2+len(want))
				f.waitPending(&k, "0")
				require.Equal(t, want, f.bodiesUnquoted()[2:])
			})
		}
	}
}

func (f *fixture) bodiesUnquoted() (bodies []string) {
	for _, b := range f.pubs["fifo"].bodies() {
		bodies = append(bodies, unquoted(b))
	}
	return bodies
}

func TestMalformedRowOfABlockingRouteStopsWhatWasClaimedWithIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toFIFO)
	ids := f.ids(insertEvents, "f", "k", 10)
	f.exec(`UPDATE pgrelay.outbox_events SET payload = '"refused"' WHERE id::text = $1`, ids[4])
	others := f.ids(insertEvents, "f", "other", 10)
	f.start()
	f.offer(append(ids, others...)...)
	f.pubs["fifo"].wait(t, 14)
	f.settled(5)
	f.unheld()
	require.Equal(t, ids[4], f.one(`SELECT row_id FROM pgrelay.failures WHERE holds_key = 'k' AND holds_to = 'fifo'`))
	require.Len(t, f.pubs["fifo"].messages(), 14)
}

func TestRowThatCrashesItsProcessHoldsItsKeyOnABlockingRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toFIFO)
	ids := f.ids(insertEvents, "f", "k", 2)
	f.exec(`INSERT INTO pgrelay.claims (outbox, instance, ids, alone) VALUES ('pgrelay.outbox_events', gen_random_uuid(), $1, true)`, ids[:1])
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, crashes, attempts, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 4, 2, now())`, ids[0])
	f.start()
	f.offer(ids...)
	f.settled(1)
	f.unheld()
	require.Equal(t, "crashed k", f.one(`SELECT reason || ' ' || holds_key FROM pgrelay.failures WHERE dead_at IS NOT NULL`))
	require.Empty(t, f.pubs["fifo"].messages())
}

func TestWhatHoldsAKeyAndWhatDoesNot(t *testing.T) {
	t.Parallel()
	const dead = `UPDATE pgrelay.outbox_events SET dead_at = now() WHERE id::text = $1`
	const failed = `INSERT INTO pgrelay.failures (outbox, row_id, dead_at, holds_key, holds_to) SELECT 'pgrelay.outbox_events', $1, now(), 'k', 'fifo'`
	for name, c := range map[string]struct {
		sql  []string
		held bool
	}{
		"dead":                     {[]string{dead, failed}, true},
		"uncertain":                {[]string{dead, failed, `UPDATE pgrelay.failures SET uncertain = true WHERE row_id = $1`}, true},
		"of another outbox":        {[]string{dead, failed, `UPDATE pgrelay.failures SET outbox = 'public.other' WHERE row_id = $1`}, false},
		"at another destination":   {[]string{dead, failed, `UPDATE pgrelay.failures SET holds_to = 'queue' WHERE row_id = $1`}, false},
		"of another key":           {[]string{dead, failed, `UPDATE pgrelay.failures SET holds_key = 'kk' WHERE row_id = $1`}, false},
		"re-armed for later":       {[]string{failed, `UPDATE pgrelay.outbox_events SET available_at = now() + interval '1 day' WHERE id::text = $1`}, false},
		"deleted":                  {[]string{failed, `DELETE FROM pgrelay.outbox_events WHERE id::text = $1`}, false},
		"dead, of a release route": {[]string{dead, failed, `UPDATE pgrelay.failures SET holds_key = NULL WHERE row_id = $1`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, toFIFO)
			f.start()
			early := f.ids(insertEvents, "f", "k", 1)
			ids := f.ids(insertEvents, "f", "k", 2)
			for _, sql := range c.sql {
				f.exec(sql, ids[0])
			}
			f.offer(early[0], ids[1])
			if !c.held {
				f.pubs["fifo"].wait(t, 2)
				f.unheld()
				return
			}
			f.pubs["fifo"].wait(t, 1)
			f.unheld()
			require.Len(t, f.pubs["fifo"].messages(), 1, "what is in front of it goes")
			require.Equal(t, ids[0], f.explain(ids[1]).HeldBy.ID)
		})
	}
}

func TestRowThatHoldsItsLineIsNotRememberedAsSettled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toFIFO)
	o := f.relay.outboxes[0]
	key := "k"
	d := &delivery{table: o.table, row: Row{ID: "7", OrderingKey: &key}, line: o.table.Name + "\x00" + key, claimed: "now"}
	f.relay.stamper.remember(o, ended(d, died), time.Now())
	require.Zero(t, f.relay.recent.lows.Len())
	f.relay.stamper.remember(o, ended(d, delivered), time.Now())
	require.Equal(t, 1, f.relay.recent.lows.Len())
}

func TestReleasedKeyGoesOnPastItsDeadRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.pubs["fifo"].script(refusing("2"))
	f.start()
	f.offer(f.ids(insertEvents, "f", "k", 4)...)
	f.pubs["fifo"].wait(t, 3)
	f.settled(0)
	require.Equal(t, []string{"1", "3", "4"}, f.pubs["fifo"].bodies())
	require.Equal(t, "1", f.one(`SELECT count(*)::text FROM pgrelay.failures WHERE dead_at IS NOT NULL AND holds_key IS NULL AND holds_to IS NULL`))
}
