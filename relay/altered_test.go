package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// What its owner does to a table while the relay works on it: that outbox may wait, and goes on by itself.

var parcels = outboxKind{
	ddl: []string{`CREATE TABLE public.parcels (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid UNIQUE DEFAULT gen_random_uuid(),
		ordering_key int, payload jsonb DEFAULT '0', published_at timestamptz)`},
	outbox:  config.Outbox{Table: "public.parcels", Routes: []config.Route{{Kind: "*", To: "fifo"}}},
	insert:  `INSERT INTO public.parcels (payload, ordering_key) VALUES (to_jsonb($1::text), $2::text::bigint) RETURNING id::text`,
	pending: `SELECT count(*)::text FROM public.parcels WHERE published_at IS NULL`,
}

func newParcels(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, parcels.outbox, parcels.ddl...)
	f.start()
	f.parcels(3, "7")
	return f
}

// parcels inserts rows of a key and has them delivered, found as the poller finds them.
func (f *fixture) parcels(n int, key string) {
	f.t.Helper()
	before := len(f.pubs["fifo"].messages())
	for i := range n {
		f.row(&parcels, fmt.Sprint(i), key)
	}
	f.offer(first(f, f.relay.Tables()[0].FirstLook(), f.relay.rooms())...)
	f.pubs["fifo"].wait(f.t, before+n)
	f.waitPending(&parcels, "0")
	require.Len(f.t, f.pubs["fifo"].messages(), before+n)
}

// troubled waits until the outbox is left alone because of an error.
func (f *fixture) troubled(sqlstate string) {
	f.t.Helper()
	pgtest.Eventually(f.t, longEnough, func() error {
		if problem := f.relay.State().Outboxes[0].Problem; !strings.Contains(problem, sqlstate) {
			return fmt.Errorf("its problem is %q", problem)
		}
		return nil
	}, "the outbox is left alone for %s", sqlstate)
}

func TestIntegersMayBecomeBigintsWhileTheRelayRuns(t *testing.T) {
	t.Parallel()
	f := newParcels(t)
	f.exec(`ALTER TABLE parcels ALTER COLUMN id TYPE bigint, ALTER COLUMN ordering_key TYPE bigint`)
	f.parcels(3, "7")
	f.exec(`ALTER TABLE parcels ALTER COLUMN id SET MAXVALUE 9223372036854775807 RESTART 3000000000`)
	f.parcels(3, "7")
	f.parcels(60, "3000000000") // more than one claim takes of a key, so that its next ids are asked for
	id := f.row(&parcels, "streamed", "7")
	require.True(t, f.relay.Inserted("public.parcels", id, 0, 1, time.Now()))
	f.waitPending(&parcels, "0")
	require.Equal(t, "3000000063", id)
	f.exec(`UPDATE parcels SET published_at = NULL WHERE id >= 3000000062`)
	require.Equal(t, []string{id}, first(f, f.relay.Tables()[0].NextLook(), f.relay.rooms(), []string{"3000000062"}))
}

func TestColumnsMayComeAndGoWhileTheRelayRuns(t *testing.T) {
	t.Parallel()
	f := newParcels(t)
	for _, change := range []string{
		`ALTER TABLE parcels ADD COLUMN note text DEFAULT 'n'`,
		`ALTER TABLE parcels RENAME COLUMN note TO remark`,
		`ALTER TABLE parcels DROP COLUMN remark`,
		`ALTER TABLE parcels ALTER COLUMN payload TYPE json`,
	} {
		f.exec(change)
		f.parcels(3, "7")
	}
	for _, c := range []struct{ gone, back string }{
		{`ALTER TABLE parcels RENAME COLUMN payload TO body`, `ALTER TABLE parcels RENAME COLUMN body TO payload`},
		{`ALTER TABLE parcels DROP COLUMN ordering_key`, `ALTER TABLE parcels ADD COLUMN ordering_key bigint`},
		{`ALTER TABLE parcels RENAME COLUMN published_at TO done_at`, `ALTER TABLE parcels RENAME COLUMN done_at TO published_at`},
	} {
		f.exec(c.gone)
		id := f.one(`INSERT INTO parcels DEFAULT VALUES RETURNING id::text`)
		f.offer(id)
		f.troubled("42703")
		before := len(f.pubs["fifo"].messages())
		f.exec(c.back)
		f.pubs["fifo"].wait(t, before+1)
		f.waitPending(&parcels, "0")
		f.parcels(3, "7")
	}
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`), "no row was charged")
}

func TestTableDroppedAndMadeAgainGoesOn(t *testing.T) {
	t.Parallel()
	f := newParcels(t)
	f.exec(`DROP TABLE parcels`)
	f.offer("1000")
	f.troubled("42P01")
	f.exec(parcels.ddl[0])
	f.parcels(10, "7") // their ids have been seen before
}

func TestRowsTruncatedInFlightAreLetGo(t *testing.T) {
	t.Parallel()
	f := newParcels(t)
	f.pubs["fifo"].hold = make(chan struct{})
	for _, key := range []string{"1", "1", "2"} {
		f.row(&parcels, "gone", key)
	}
	f.offer(first(f, f.relay.Tables()[0].FirstLook(), f.relay.rooms())...)
	pgtest.Eventually(t, longEnough, func() bool { return f.relay.destinations[1].state().inFlight == 2 }, "rows are on the wire")
	f.exec(`TRUNCATE parcels RESTART IDENTITY`)
	close(f.pubs["fifo"].hold)
	f.waitPending(&parcels, "0")
	pgtest.Eventually(t, longEnough, func() bool { rows, _ := f.relay.flights.inFlight(); return rows == 0 }, "they are let go")
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
	f.pubs["fifo"].wait(t, 6)
	f.parcels(10, "7")
}

func TestPartitionsMayComeAndGoWhileTheRelayRuns(t *testing.T) {
	t.Parallel()
	k := outboxKind{
		outbox:  config.Outbox{Table: "public.parted", Routes: []config.Route{{Kind: "*", To: "fifo"}}},
		insert:  `INSERT INTO public.parted (payload, day, ordering_key) VALUES (to_jsonb($1::text), $2::text::int, $2) RETURNING id::text`,
		pending: `SELECT count(*)::text FROM public.parted WHERE published_at IS NULL`,
	}
	f := newFixture(t, k.outbox, `CREATE SEQUENCE public.ids`,
		`CREATE TABLE public.parted (id bigint DEFAULT nextval('public.ids'), event_id uuid DEFAULT gen_random_uuid(), ordering_key text, payload jsonb, day int,
			published_at timestamptz, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)`,
		`CREATE TABLE public.day_1 PARTITION OF public.parted FOR VALUES FROM (1) TO (2)`,
		`CREATE TABLE public.day_2 PARTITION OF public.parted FOR VALUES FROM (2) TO (3)`,
		`CREATE TABLE public.day_3 (LIKE public.parted INCLUDING ALL)`)
	f.start()
	pub := f.pubs["fifo"]
	look := func() { f.offer(first(f, f.relay.Tables()[0].FirstLook(), f.relay.rooms())...) }
	f.row(&k, "a", "1")
	f.row(&k, "b", "2")
	look()
	pub.wait(t, 2)
	f.waitPending(&k, "0")

	// One that is attached brings its rows along; their columns lie elsewhere than the root's.
	f.exec(`ALTER TABLE day_3 DROP COLUMN payload; ALTER TABLE day_3 ADD COLUMN payload jsonb; INSERT INTO day_3 (payload, day) VALUES ('"c"', 3)`)
	f.exec(`ALTER TABLE parted ATTACH PARTITION day_3 FOR VALUES FROM (3) TO (4)`)
	look()
	pub.wait(t, 3)
	f.waitPending(&k, "0")

	// Those that go take their rows along, in flight or not.
	pub.hold = make(chan struct{})
	f.row(&k, "d", "1")
	f.row(&k, "e", "2")
	f.row(&k, "f", "3")
	look()
	pgtest.Eventually(t, longEnough, func() bool { return f.relay.destinations[1].state().inFlight == 3 }, "rows are on the wire")
	f.row(&k, "never claimed", "2")
	waiting := first(f, f.relay.Tables()[0].FirstLook(), f.relay.rooms())
	f.exec(`ALTER TABLE parted DETACH PARTITION day_1; DROP TABLE day_2`)
	f.offer(waiting...)
	close(pub.hold)
	pub.wait(t, 6)
	f.waitPending(&k, "0")
	f.row(&k, "g", "3")
	look()
	pub.wait(t, 7)
	f.waitPending(&k, "0")
	require.Equal(t, "1", f.one(`SELECT count(*)::text FROM day_1 WHERE published_at IS NULL`), "what is no partition any more is left alone")
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
}
