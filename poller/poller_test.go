package poller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
	"pgrelay/relay"
)

const never = "NULL::timestamptz"

func TestStartOffersEveryPendingRowPageByPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.insert("a", 2*relay.LookSize+7, never)
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE id IN (3, 1004)`)
	f.exec(`UPDATE pgrelay.outbox_events SET dead_at = now() WHERE id = 5`)
	f.start()
	f.offered(2*relay.LookSize + 4)
}

func TestRowsAreFoundWithinAnInterval(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50*time.Millisecond)
	f.start()
	f.insert("a", 3, never)
	f.offered(3)
	ids := f.insert("b", 1, never)
	f.offered(4)
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now()`)
	seen := f.taker.offers(ids[0])
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = NULL WHERE id::text = $1`, ids[0])
	pgtest.Eventually(t, patience, func() error {
		if f.taker.offers(ids[0]) <= seen {
			return errors.New("not offered again")
		}
		return nil
	}, "a row that was set back by hand is seen")
}

func TestRowsOfADestinationWithoutRoomAreLeftOutUntilALookIsAskedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20*time.Millisecond)
	f.taker.rooms = []int32{0, 10}
	f.insert("a", 5, never)
	b := f.insert("b", 2, never)
	f.start()
	f.offered(2)
	seen := f.taker.offers(b[0])
	pgtest.Eventually(t, patience, func() error { // many looks later
		if f.taker.offers(b[0]) < seen+3 {
			return errors.New("few looks")
		}
		return nil
	}, "looks go on")
	require.Equal(t, 2, f.taker.distinct())
	f.taker.mu.Lock()
	f.taker.rooms = []int32{1, 10}
	f.taker.mu.Unlock()
	f.p.Look(f.table, 0)
	f.offered(7)
}

func TestDeferredRowIsOfferedAtItsTimeAndInfinityNever(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	deferred := f.insert("a", 1, "now() + interval '600 ms'")
	never := f.insert("a", 1, "'infinity'")
	f.insert("b", 1, "'-infinity'")
	f.start()
	f.offered(2)
	f.notBefore(deferred[0], `SELECT available_at FROM pgrelay.outbox_events WHERE id::text = $1`)
	require.Zero(t, f.taker.offers(never[0]))
}

func TestWaitingRetryIsOfferedAtItsTimeAndNotBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20*time.Millisecond)
	ids := f.insert("a", 3, never)
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ($1, $2, 1, now() + interval '1 s'), ($1, $3, 1, now() + interval '1 h')`,
		f.table.Name, ids[0], ids[1])
	f.start()
	f.offered(2)
	f.notBefore(ids[0], `SELECT next_attempt_at FROM pgrelay.failures WHERE row_id = $1`)
	require.Zero(t, f.taker.offers(ids[1]))
}

func TestNotificationWakesThePoller(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.start()
	pgtest.Eventually(t, patience, func() error {
		var n int
		if err := f.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgrelay poller' AND datname = current_database() AND query LIKE '%FROM page%' AND state = 'idle'`).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return errors.New("it has not looked yet")
		}
		return nil
	}, "the poller waits")
	f.insert("a", 5, never)
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now()`)
	change, err := f.table.Republish(t.Context(), f.conn, relay.Selection{Where: []relay.Equal{{Column: "event_type", Value: "a"}}}, false)
	require.NoError(t, err)
	require.Equal(t, 5, change.Rows)
	f.offered(5)
}

func TestLostConnectionIsFollowedByAFullLook(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.start()
	f.insert("a", 1, never)
	f.p.Look(f.table, -1)
	f.offered(1)
	f.insert("a", 1, never)
	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgrelay poller' AND datname = current_database()`)
	f.offered(2)
}

func TestLockedTableIsLeftAloneAndTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20*time.Millisecond)
	tx, err := f.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('a', '1'); LOCK TABLE pgrelay.outbox_events`)
	require.NoError(t, err)
	f.start()
	require.NoError(t, tx.Commit(t.Context()))
	f.offered(1)
}

func TestSweepDeletesFailuresWithoutARowAndKeepsThoseOfPendingRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	ids := f.insert("a", 3, never)
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE id::text = $1`, ids[0])
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, next_attempt_at) SELECT $1, u, now() FROM unnest($2::text[]) u`, f.table.Name, append(ids, "999"))
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, dead_at) VALUES ($1, '998', now())`, f.table.Name)
	f.start()
	pgtest.Eventually(t, patience, func() error {
		var left string
		if err := f.conn.QueryRow(t.Context(), `SELECT string_agg(row_id, ' ' ORDER BY row_id::bigint) FROM pgrelay.failures`).Scan(&left); err != nil {
			return err
		}
		if want := fmt.Sprintf("%s %s 998", ids[1], ids[2]); left != want {
			return fmt.Errorf("%s are left, not %s", left, want)
		}
		return nil
	}, "orphans are deleted")
}

func TestRetentionDeletesOldPublishedAndDiscardedRowsOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload, created_at, published_at, dead_at)
		SELECT state, '1', now() - age, CASE WHEN state = 'published' THEN now() - age END, CASE WHEN state IN ('dead', 'discarded') THEN now() - age END
		FROM generate_series(1, 800) n, (VALUES ('published', interval '2 h'), ('dead', interval '2 h'), ('discarded', interval '2 h'), ('pending', interval '2 h'),
			('published', interval '1 min'), ('discarded', interval '1 min')) v(state, age)`)
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, dead_at) SELECT $1, id::text, now() FROM pgrelay.outbox_events WHERE event_type = 'dead'`, f.table.Name)
	f.start()
	pgtest.Eventually(t, patience, func() error {
		var n, old int
		err := f.conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE event_type IN ('published', 'discarded') AND created_at < now() - interval '1 h')
			FROM pgrelay.outbox_events`).Scan(&n, &old)
		if err == nil && (n != 3200 || old != 0) {
			err = fmt.Errorf("%d rows, %d of them old", n, old)
		}
		return err
	}, "old published and discarded rows are deleted")
}

func TestLedgerForgetsEventsPastTheirRetention(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.exec(`INSERT INTO pgrelay.processed_events SELECT age || ' ' || n, now() - age::interval FROM generate_series(1, 2500) n, (VALUES ('2 h'), ('1 min')) v(age)`)
	f.cfg.Ledger = time.Hour
	f.open(config.Outbox{Table: "pgrelay.outbox_events", Ledger: "pgrelay.processed_events", Routes: []config.Route{{Kind: "*", To: "a"}}})
	f.start()
	pgtest.Eventually(t, patience, func() error {
		var n, old int
		err := f.conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE processed_at < now() - interval '1 h') FROM pgrelay.processed_events`).Scan(&n, &old)
		if err == nil && (n != 2500 || old != 0) {
			err = fmt.Errorf("%d events, %d of them old", n, old)
		}
		return err
	}, "old events are forgotten")
}

func TestLookThatFoundNoRoomGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	ids := f.insert("a", 3*relay.LookSize, never)
	f.taker.refuse = 5
	f.start()
	f.offered(3 * relay.LookSize)
	require.Equal(t, 1, f.taker.offers(ids[0]), "it did not begin again")
}

func TestLookForOneDestinationThatFoundNoRoomGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	ids := f.insert("a", 3*relay.LookSize, never)
	f.insert("b", 1, never)
	f.start()
	f.offered(3*relay.LookSize + 1)
	f.taker.refuseNext(5)
	f.p.Look(f.table, 0)
	pgtest.Eventually(t, patience, func() bool { return f.taker.offers(ids[len(ids)-1]) == 2 }, "the destination's rows are offered again")
	require.LessOrEqual(t, f.taker.offers(ids[0]), 2, "it did not begin again")
}

func TestDueRowsBehindAPageOfThoseThatCannotGoAreOffered(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.insert("a", relay.LookSize+3, "now() - interval '1 s'")
	f.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload) SELECT 'b', '1' FROM generate_series(1, $1::int)`, 2*relay.LookSize+1)
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) SELECT $1, id::text, 1, now() FROM pgrelay.outbox_events WHERE event_type = 'b'`, f.table.Name)
	f.start()
	f.offered(3*relay.LookSize + 4) // the taker takes none of them out of the table
}

func TestRowForWhichReadyFailsKeepsNoOtherFromBeingFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50*time.Millisecond)
	f.open(config.Outbox{
		Table: "pgrelay.outbox_events", Ready: "10 / (o.payload->>'n')::int > 1", Select: "(o.payload->>'at')::timestamptz AS at",
		Kind: config.RowKind{Column: "event_type"}, Routes: []config.Route{{Kind: "*", To: "a", Body: "{{.at}}"}},
	})
	insert := func(payload, available string) (id string) {
		require.NoError(t, f.conn.QueryRow(t.Context(),
			`INSERT INTO pgrelay.outbox_events (event_type, payload, available_at) VALUES ('a', $1, `+available+`) RETURNING id::text`, payload).Scan(&id))
		return id
	}
	bad := insert(`{"n": 0}`, "NULL")
	insert(`{"n": 1}`, "NULL")
	insert(`{"n": 1}`, "now() - interval '1 s'")
	retried := insert(`{"n": 1}`, "NULL")
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 1, now())`, retried)
	f.start()
	f.offered(4) // the bad one as well: its claim tells of it
	insert(`{"n": 2}`, "NULL")
	f.offered(5)

	f.exec(`UPDATE pgrelay.outbox_events SET payload = '{"n": 100}' WHERE id::text = $1`, bad)
	unready := insert(`{"n": 100}`, "NULL")
	pgtest.Eventually(t, patience, func() bool {
		before := f.taker.offers(unready)
		f.exec(`SELECT pg_sleep(0.2)`)
		return f.taker.offers(unready) == before
	}, "looks ask whether rows are ready again")
}

func TestRowThatBecomesReadyIsFoundWithinAnInterval(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50*time.Millisecond)
	f.exec(`CREATE TABLE jobs (id bigint PRIMARY KEY, open bool)`)
	f.open(config.Outbox{
		Table: "pgrelay.outbox_events", Join: "JOIN jobs ON jobs.id = o.id", Ready: "jobs.open", Routes: []config.Route{{Kind: "*", To: "a"}},
	})
	ids := f.insert("a", 3, never)
	deferred := f.insert("a", 1, "now() - interval '1 s'")
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 1, now())`, ids[2])
	f.exec(`INSERT INTO jobs SELECT id, id::text = $1 FROM pgrelay.outbox_events WHERE id::text <> $2`, ids[0], ids[1])
	f.start()
	f.offered(1)
	f.exec(`UPDATE jobs SET open = true WHERE id::text IN ($1, $2)`, ids[2], deferred[0])
	f.offered(3)
	f.exec(`INSERT INTO jobs VALUES ($1::text::bigint, true)`, ids[1])
	f.offered(4)
}
