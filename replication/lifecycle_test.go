package replication

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestTheFirstStartMakesAPublicationOfIdsAndASlot(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t)).start().connected()
	require.Equal(t, []string{"slot created: missing"}, r.sink.caughtUp())
	require.Equal(t, "true false false false true", query[string](t, r.db,
		`SELECT concat_ws(' ', pubinsert::text, pubupdate::text, pubdelete::text, pubtruncate::text, pubviaroot::text) FROM pg_publication`))
	if r.db.Server.Version >= columnListVersion {
		require.Equal(t, []string{"id"}, query[[]string](t, r.db, `SELECT attnames::text[] FROM pg_publication_tables`))
	}
	if r.db.Server.Version >= failoverVersion {
		require.False(t, query[bool](t, r.db, `SELECT failover FROM pg_replication_slots WHERE slot_name = $1`, r.cfg.Slot))
	}
	require.Equal(t, []string{applicationName}, query[[]string](t, r.db,
		`SELECT array_agg(application_name) FROM pg_stat_replication WHERE pid = (SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1)`, r.cfg.Slot))
}

func TestAFailoverSlotIsAskedForWhereTheServerHasThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.cfg.Failover = true
	r.start().connected()
	if r.db.Server.Version >= failoverVersion {
		require.True(t, query[bool](t, r.db, `SELECT failover FROM pg_replication_slots WHERE slot_name = $1`, r.cfg.Slot))
	}
	r.arrives("outbox", r.insert(1)...)
}

func TestASlotThatIsThereBecomesAFailoverSlotAsConfigured(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE PUBLICATION pgrelay FOR TABLE outbox`)
	r.db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.cfg.Slot)
	for _, failover := range []bool{true, false} {
		r.cfg.Failover = failover
		r.start().connected()
		if r.db.Server.Version >= failoverVersion {
			require.Equal(t, failover, query[bool](t, r.db, `SELECT failover FROM pg_replication_slots WHERE slot_name = $1`, r.cfg.Slot))
		}
		r.stop()
	}
	require.Equal(t, []string{"connected", "connected"}, r.sink.caughtUp(), "the slot was kept")
}

func TestATemporarySlotEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.start().connected()
	r.stop() // leaves a lasting one
	r.cfg.Temporary = true
	r.start().connected()
	require.True(t, r.slot().Temporary)
	r.arrives("outbox", r.insert(1)...)
	r.db.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, r.cfg.Slot)
	r.eventually("the slot is made again", func() error {
		if n := r.metric("pgrelay_slot_created_total"); n != 3 {
			return fmt.Errorf("%v slots", n)
		}
		return nil
	})
	r.connected().stop()
	r.eventually("the slot is gone", func() error {
		if r.slot().Exists {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

func TestADroppedSlotIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.timing.retryFirst = 500 * time.Millisecond // leaves room for the drop, on most machines at the first try
	r.start().connected()
	admin := r.db.Connect(t)
	var ended int64
	r.eventually("the slot is dropped", func() error {
		ended += query[int64](t, r.db, `SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE slot_name = $1`, r.cfg.Slot)
		return Drop(t.Context(), admin, r.cfg.Slot)
	})
	r.eventually("the slot is made again", func() error {
		if got := r.sink.caughtUp(); !slices.Equal(got, []string{"slot created: missing", "slot created: missing"}) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	r.arrives("outbox", r.insert(1)...)
	reconnects := r.metric("pgrelay_stream_reconnects_total")
	require.Positive(t, reconnects)
	require.LessOrEqual(t, reconnects, float64(ended))
}

func TestAPublicationDroppedWhileStreamingIsMadeAgainWithItsSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.timing.watchEvery = 100 * time.Millisecond // from 18 on the decoder no longer minds
	r.start().connected()
	r.db.Exec(t, `DROP PUBLICATION pgrelay`)
	r.insert(1) // what makes the decoder look for it
	r.caughtUp("slot created: publication")
	r.connected()
	r.sees(r.insert(1)[0])
	require.EqualValues(t, 1, r.metric("pgrelay_stream_reconnects_total"), "the slot goes with the publication, not a failure later")
}

func TestAPublicationMadeAfterTheSlotReplacesTheSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.cfg.Slot)
	r.insert(1) // the slot will decode this row with a catalog without publication
	r.db.Exec(t, `CREATE PUBLICATION pgrelay FOR TABLE outbox`)
	r.start()
	made := 0.
	if r.db.Server.Version < 18 { // 18 skips such rows instead of failing
		r.caughtUp("slot created: publication")
		made = 1
	}
	r.connected()
	r.arrives("outbox", r.insert(1)...)
	require.EqualValues(t, made, r.metric("pgrelay_slot_created_total"))
}

func TestATableTakenOutOfThePublicationIsPutBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE TABLE rest (id int)`)
	r.cfg.Tables = append(r.cfg.Tables, Table{Schema: "public", Name: "rest", IDColumn: "id", Canonical: "rest"})
	r.timing.watchEvery = 50 * time.Millisecond
	r.start().connected()
	r.db.Exec(t, `ALTER PUBLICATION pgrelay DROP TABLE outbox`)
	r.caughtUp("publication changed")
	r.connected()
	r.arrives("outbox", r.insert(1)...)
}

func TestATableThatIsNotThereLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE UNLOGGED TABLE scratch (id int)`)
	for _, name := range []string{"scratch", "later"} {
		r.cfg.Tables = append(r.cfg.Tables, Table{Schema: "public", Name: name, IDColumn: "id", Canonical: name})
	}
	r.timing.watchEvery = 50 * time.Millisecond
	r.start().connected()
	require.Contains(t, r.logs.String(), "table scratch is unlogged or temporary; table later is not there")
	r.arrives("outbox", r.insert(1)...)
	r.db.Exec(t, `CREATE TABLE later (id int)`)
	r.caughtUp("publication changed")
	r.connected()
	r.db.Exec(t, `INSERT INTO later VALUES (1)`)
	r.arrives("later", "1")
}
