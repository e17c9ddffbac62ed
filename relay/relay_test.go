package relay

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestOfferedRowsAreDeliveredOnceAndStamped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	ids := f.ids(insertEvents, "q", nil, 2000)
	f.offer(ids...)
	f.pubs["queue"].wait(t, 2000)
	f.offer(ids...)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 2000)
	require.NoError(t, f.stop())
}

func TestRowsOfOneKeyGoInTheirOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	var ids []string
	for n := range 700 {
		ids = append(ids, f.ids(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) VALUES ('f', $1, to_jsonb($2::int)) RETURNING id::text`,
			fmt.Sprint("key", n%7), n)...)
	}
	for i := len(ids); i > 0; i -= 50 { // later ones first
		f.offer(ids[i-50 : i]...)
	}
	f.pubs["fifo"].wait(t, 700)
	f.settled(0)
	last := map[string]int{}
	for _, m := range f.pubs["fifo"].messages() {
		var n int
		_, err := fmt.Sscan(m.Body, &n)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, last[m.Group], m.Group)
		last[m.Group] = n
	}
	require.Len(t, f.pubs["fifo"].messages(), 700)
}

func TestRefusedRowRetriesWithBackoffAndDiesAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.pubs["queue"].script(func(m *Message) Result {
		if m.Body == "5" {
			return Result{Outcome: OutcomeRetry, Reason: "internal_error", Detail: "refused"}
		}
		return Result{Outcome: OutcomeDelivered}
	})
	f.start()
	ids := f.ids(insertEvents, "q", nil, 10)
	f.offer(ids...)
	f.settled(1)
	require.Len(t, f.pubs["queue"].messages(), 9)
	require.Equal(t, "1 internal_error", f.one(`SELECT attempts || ' ' || reason FROM pgrelay.failures`))
	for f.one(`SELECT count(*) FILTER (WHERE dead_at IS NULL)::text FROM pgrelay.failures`) == "1" {
		f.offer(ids[4])
	}
	f.settled(0)
	require.Equal(t, "3", f.one(`SELECT attempts::text FROM pgrelay.failures WHERE dead_at IS NOT NULL AND next_attempt_at IS NULL`))
	require.Equal(t, ids[4], f.one(`SELECT id::text FROM pgrelay.outbox_events WHERE dead_at IS NOT NULL`))
}

func TestUnknownKindDiesAtOnceAndLeavesItsNeighboursAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	odd := f.ids(insertEvents, "strange", nil, 1)
	f.offer(append(odd, f.ids(insertEvents, "q", nil, 3)...)...)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 3)
	require.Contains(t, f.one(`SELECT reason || ': ' || detail FROM pgrelay.failures WHERE attempts = 0`), "unknown_kind: no route")
}

func TestRowChangedInFlightTakesNoOutcomeAndGoesAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	pub := f.pubs["fifo"]
	pub.hold = make(chan struct{})
	f.start()
	ids := f.ids(insertEvents, "f", "k", 1)
	f.offer(ids...)
	for f.one(`SELECT count(*)::text FROM pgrelay.claims`) == "0" {
		f.offer(ids...)
	}
	f.exec(`UPDATE pgrelay.outbox_events SET payload = '"changed"' WHERE id::text = $1`, ids[0])
	close(pub.hold)
	pub.wait(t, 2)
	f.settled(0)
	require.Equal(t, []string{"1", `"changed"`}, pub.bodies())
	first, second := pub.messages()[0], pub.messages()[1]
	require.Equal(t, first.EventID, second.EventID)
	require.True(t, strings.HasPrefix(second.DedupID, first.DedupID+":"), second.DedupID)
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`), "the generation ends with the delivery")
}

func TestRowLockedBySomebodyDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	ids := f.ids(insertEvents, "q", nil, 20)
	other := f.db.Connect(t)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM pgrelay.outbox_events WHERE id::text = $1 FOR UPDATE`, ids[7])
	require.NoError(t, err)
	f.start()
	f.offer(ids...)
	f.settled(1)
	require.Len(t, f.pubs["queue"].messages(), 19)
	require.NoError(t, tx.Rollback(t.Context()))
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 20)
}

func TestRowLockedWhileInFlightIsStampedWhenItIsFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	pub := f.pubs["queue"]
	pub.hold = make(chan struct{})
	f.start()
	ids := f.ids(insertEvents, "q", nil, 10)
	f.offer(ids...)
	for f.one(`SELECT count(*)::text FROM pgrelay.claims`) == "0" {
		f.offer(ids...)
	}
	other := f.db.Connect(t)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM pgrelay.outbox_events WHERE id::text = $1 FOR UPDATE`, ids[7])
	require.NoError(t, err)
	close(pub.hold)
	for f.one(`SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NULL`) != "1" {
		f.offer(ids...)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	f.settled(0)
	require.Len(t, pub.messages(), 10, "nothing was sent twice")
}

func TestDestinationAtFaultChargesNothingAndOthersGoOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	down := true
	f.pubs["fifo"].fault = func([]*Message) *Fault {
		if down {
			return &Fault{Reason: "unreachable"}
		}
		return nil
	}
	f.start()
	f.offer(f.ids(insertEvents, "f", "k", 300)...)
	f.offer(f.ids(insertEvents, "q", nil, 300)...)
	f.pubs["queue"].wait(t, 300)
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
	f.pubs["fifo"].mu.Lock()
	down = false
	f.pubs["fifo"].mu.Unlock()
	f.pubs["fifo"].wait(t, 300)
	f.settled(0)
	require.Len(t, f.pubs["fifo"].messages(), 300)
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
}

func TestNextLeaderTakesUpTheRowsOfADeadOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	ids := f.ids(insertEvents, "q", nil, 5)
	f.exec(`INSERT INTO pgrelay.claims (outbox, instance, ids) VALUES ('pgrelay.outbox_events', gen_random_uuid(), $1)`, ids)
	f.start()
	f.pubs["queue"].wait(t, 5)
	f.settled(0)
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
}

func TestRowThatKillsTheProcessDiesAloneAfterMaxAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	ids := f.ids(insertEvents, "q", nil, 2)
	f.exec(`INSERT INTO pgrelay.claims (outbox, instance, ids, alone) VALUES ('pgrelay.outbox_events', gen_random_uuid(), $1, true)`, ids[:1])
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, crashes, attempts, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 4, 2, now()), ('pgrelay.outbox_events', $2, 4, 2, now())`, ids[0], ids[1])
	f.start()
	f.offer(ids...)
	f.pubs["queue"].wait(t, 1)
	f.settled(0)
	require.Equal(t, ids[0], f.one(`SELECT id::text FROM pgrelay.outbox_events WHERE dead_at IS NOT NULL`))
	require.Equal(t, "crashed 3", f.one(`SELECT reason || ' ' || attempts FROM pgrelay.failures`))
}

func TestRowSetBackByHandGetsANewDeduplicationID(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	ids := f.ids(insertEvents, "f", "k", 1)
	f.offer(ids...)
	f.settled(0)
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = NULL`)
	f.offer(ids...)
	f.pubs["fifo"].wait(t, 2)
	f.settled(0)
	require.NotEqual(t, f.pubs["fifo"].messages()[0].DedupID, f.pubs["fifo"].messages()[1].DedupID)
}

func TestRowsOfAnOpenTransactionThatTheStreamBringsAreWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	tx, err := f.conn.Begin(t.Context())
	require.NoError(t, err)
	var id string
	var xid int64
	require.NoError(t, tx.QueryRow(t.Context(), `INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', '1') RETURNING id::text, pg_current_xact_id()::text::bigint`).Scan(&id, &xid))
	require.True(t, f.relay.Inserted("pgrelay.outbox_events", id, uint32(xid), 1, time.Now()))
	require.NoError(t, tx.Commit(t.Context()))
	f.pubs["queue"].wait(t, 1)
	f.settled(0)
}

func TestIDsWhoseRowsAreGoneAreLetGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	ids := f.ids(insertEvents, "q", nil, 10)
	xid, err := strconv.ParseUint(f.one(`SELECT xmin::text FROM pgrelay.outbox_events LIMIT 1`), 10, 32)
	require.NoError(t, err)
	f.exec(`DELETE FROM pgrelay.outbox_events`)
	for _, id := range ids {
		require.True(t, f.relay.Inserted("pgrelay.outbox_events", id, uint32(xid), 1, time.Now()))
	}
	empty := 0 // times in a row: an id that is being asked for is nowhere for a moment
	pgtest.Eventually(t, longEnough, func() bool {
		if empty++; f.relay.outboxes[0].inbox.size() > 0 {
			empty = 0
		}
		return empty == 50
	}, "nothing waits for them")
	require.Empty(t, f.pubs["queue"].messages())
}

func TestEndToEndTimeOfPolledRowsBeginsWhereTheTableTells(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	ids := f.ids(`INSERT INTO pgrelay.outbox_events (event_type, payload, created_at, available_at) VALUES
		('q', '1', now() - interval '1 hour', NULL), ('q', '1', now() - interval '2 hours', now() - interval '1 hour'),
		('q', '1', '-infinity', NULL), ('q', '1', now() - interval '9 hours', NULL) RETURNING id::text`)
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, generation, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 7, now())`, ids[3])
	f.start()
	f.offer(ids...)
	f.settled(0)
	registry, ok := f.relay.cfg.Registerer.(*prometheus.Registry)
	require.True(t, ok)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() != "pgrelay_end_to_end_seconds" || m.GetLabel()[0].GetValue() != "queue" || m.GetLabel()[1].GetValue() != "poller" {
				continue
			}
			require.EqualValues(t, 2, m.GetHistogram().GetSampleCount())
			require.InDelta(t, 2*3600, m.GetHistogram().GetSampleSum(), 300)
			return
		}
	}
	require.Fail(t, "there is no such histogram")
}
