package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// bookings is a table with a status of its own, which a worker of its owner's may use as well.
var bookings = outboxKind{
	ddl: []string{`CREATE TABLE public.booked (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid UNIQUE DEFAULT gen_random_uuid(), ordering_key text, body text,
		status text DEFAULT 'PENDING', claimed_at timestamptz, updated_at timestamptz, attempts int NOT NULL DEFAULT 0, next_attempt_at timestamptz, last_error text)`},
	outbox:  config.Outbox{Table: "public.booked", Status: ownStatus, Routes: withBody("fifo", "")},
	insert:  `INSERT INTO public.booked (body, ordering_key) VALUES ($1, $2) RETURNING id::text`,
	pending: `SELECT count(*)::text FROM public.booked WHERE status IN ('PENDING', 'PROCESSING')`,
}

// booked inserts a row with a status and since when somebody has been processing it.
func (f *fixture) booked(key, status, since string) string {
	f.t.Helper()
	return f.one(`INSERT INTO public.booked (body, ordering_key, status, claimed_at) VALUES ($1, $1, nullif($2, ''), `+since+`) RETURNING id::text`, key, status)
}

// statuses are the rows' statuses by their keys, as text.
func (f *fixture) statuses() string {
	f.t.Helper()
	return f.one(`SELECT string_agg(coalesce(status, '-'), ' ' ORDER BY id) FROM public.booked`)
}

func TestRowThatSomebodyElseProcessesStandsInFrontOfItsKeyAndAnUnknownStatusDoesNot(t *testing.T) {
	t.Parallel()
	f := newFixture(t, bookings.outbox, bookings.ddl...)
	f.booked("a", "CANCELLED", "NULL")
	f.booked("a", "", "NULL")
	taken := f.booked("a", "PROCESSING", "now() - interval '10 s'")
	behind, other := f.booked("a", "PENDING", "NULL"), f.booked("b", "PENDING", "NULL")
	require.Equal(t, []string{behind, other}, first(f, f.relay.Tables()[0].FirstLook(), openRooms))
	require.Equal(t, Counts{Table: "public.booked", Pending: 2, Processing: 1}, withoutAge(f.count()))
	f.start()
	f.offer(taken, behind, other)
	f.awaitState(other, StatePublished)
	f.explain(behind).says(t, StateBehind, taken, "that row is taken")
	require.Len(t, f.pubs["fifo"].messages(), 1)
	f.exec(`UPDATE booked SET status = 'PUBLISHED' WHERE id::text = $1`, taken)
	f.awaitState(behind, StatePublished)
	require.Equal(t, "CANCELLED - PUBLISHED PUBLISHED PUBLISHED", f.statuses())
	require.Equal(t, []string{"b", "a"}, f.pubs["fifo"].bodies())
}

func TestRowIsProcessingInFlightAndPendingWhereItGoesBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, bookings.outbox, bookings.ddl...)
	pub := f.pubs["fifo"]
	pub.hold = make(chan struct{})
	pub.fault = func([]*Message) *Fault { return &Fault{Reason: "unreachable"} }
	f.start()
	id := f.row(&bookings, "x", "a")
	f.offer(id)
	f.waitFor(`SELECT count(*) FROM booked WHERE status = 'PROCESSING' AND claimed_at = updated_at`, 1)
	f.explain(id).says(t, StateInFlight)
	f.row(&bookings, "not asked for yet", "b")
	require.Equal(t, Counts{Table: "public.booked", Pending: 1, Processing: 1}, withoutAge(f.count()))
	close(pub.hold)
	f.waitFor(`SELECT count(*) FROM booked WHERE status = 'PENDING' AND claimed_at IS NULL AND updated_at IS NOT NULL AND attempts = 0
		AND next_attempt_at IS NULL AND last_error IS NULL`, 1)
	f.waitFor(`SELECT count(*) FROM pgrelay.failures`, 0)
	require.NoError(t, f.stop())
	require.Equal(t, "PENDING PENDING", f.statuses())
}

func TestWrittenColumnsTellHowItGoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, bookings.outbox, bookings.ddl...)
	pub := f.pubs["fifo"]
	refused := Result{Outcome: OutcomeRetry, Reason: "odd", Detail: "refused"}
	pub.script(func(*Message) Result { return refused })
	f.relay.cfg.Limits.Retry.Initial, f.relay.cfg.Limits.Retry.Max = config.Duration(time.Hour), config.Duration(time.Hour)
	f.start()
	bad := f.row(&bookings, "bad", "a")
	f.offer(bad)
	f.waitFor(`SELECT count(*) FROM booked JOIN pgrelay.failures f ON row_id = id::text WHERE booked.attempts = 1 AND booked.next_attempt_at = f.next_attempt_at
		AND last_error = 'odd: refused' AND status = 'PENDING' AND claimed_at IS NULL`, 1)
	refused = Result{Outcome: OutcomeRejected, Reason: "too_large"}
	f.exec(`UPDATE pgrelay.failures SET next_attempt_at = now()`)
	f.offer(bad)
	f.waitFor(`SELECT count(*) FROM booked WHERE attempts = 2 AND next_attempt_at IS NULL AND last_error = 'too_large' AND status = 'FAILED' AND claimed_at IS NOT NULL`, 1)
	f.explain(bad).says(t, StateDead, "too_large")

	table := f.relay.Tables()[0]
	_, err := table.RetryDead(t.Context(), f.conn, DeadSelection{IDs: []string{bad}})
	require.NoError(t, err)
	require.Equal(t, "PENDING 0", f.one(`SELECT concat_ws(' ', status, attempts, next_attempt_at, last_error, claimed_at) FROM booked`))
	refused = Result{Outcome: OutcomeUnknown, Reason: "timeout"}
	f.offer(bad)
	f.waitFor(`SELECT count(*) FROM booked WHERE attempts = 0 AND next_attempt_at > now() AND last_error = 'timeout' AND status = 'PENDING'`, 1)
	pub.script(nil)
	f.exec(`UPDATE pgrelay.failures SET next_attempt_at = now()`)
	f.offer(bad)
	f.waitFor(`SELECT count(*) FROM booked WHERE next_attempt_at IS NULL AND last_error IS NULL AND status = 'PUBLISHED' AND claimed_at IS NOT NULL`, 1)
}

func TestStaleRowsOfOthersAreTakenBackAndNoneThatARelayHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, bookings.outbox, bookings.ddl...)
	f.booked("stale", "PROCESSING", "now() - interval '61 s'")
	f.booked("fresh", "PROCESSING", "now() - interval '50 s'")
	never := f.booked("nobody says since when", "PROCESSING", "NULL")
	held := f.booked("in a claim", "PROCESSING", "now() - interval '1 h'")
	f.booked("published long ago", "PUBLISHED", "now() - interval '1 h'")
	locked := f.booked("locked", "PROCESSING", "now() - interval '1 h'")
	f.exec(`INSERT INTO booked (status, updated_at) VALUES ('PROCESSING', now() - interval '61 s')`)
	f.exec(`INSERT INTO pgrelay.claims (outbox, instance, ids) VALUES ('public.booked', $1, $2), ('public.other', $1, '{1}')`, uuid.New(), []string{held})
	tx, err := f.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM booked WHERE id::text = $1 FOR UPDATE`, locked)
	require.NoError(t, err)
	table := f.relay.Tables()[0]
	f.exec(table.TakeBack(), 60.0)
	require.Equal(t, "PENDING PROCESSING PROCESSING PROCESSING PUBLISHED PROCESSING PENDING", f.statuses())
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM booked WHERE status = 'PENDING' AND claimed_at IS NOT NULL`))
	require.NoError(t, tx.Rollback(t.Context()))
	f.exec(table.TakeBack(), 60.0)
	require.Equal(t, "PENDING PROCESSING PROCESSING PROCESSING PUBLISHED PENDING PENDING", f.statuses())
	f.explain(never).says(t, StateTaken, "is not taken back", "set it to PENDING")
	e := f.explain(f.one(`SELECT id::text FROM booked WHERE body = 'fresh'`))
	e.says(t, StateTaken, "somebody else is processing it", "taken back")
	require.NotNil(t, e.Since)
	f.explain(held).says(t, StateAbandoned)
}

func TestStatusThatTheRelayDoesNotKnowIsLeftAloneAndExplained(t *testing.T) {
	t.Parallel()
	f := newFixture(t, bookings.outbox, bookings.ddl...)
	cancelled, null := f.booked("a", "CANCELLED", "NULL"), f.booked("b", "", "NULL")
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, dead_at, reason) VALUES ('public.booked', $1, now(), 'odd')`, cancelled)
	table := f.relay.Tables()[0]
	_, err := table.Republish(t.Context(), f.conn, Selection{IDs: []string{cancelled}}, false)
	require.ErrorContains(t, err, "has a status for id "+cancelled+" that the relay doesn't know")
	change, err := table.Republish(t.Context(), f.conn, Selection{Where: []Equal{{"event_id", f.one(`SELECT event_id::text FROM booked WHERE id::text = $1`, null)}}}, false)
	require.NoError(t, err)
	require.Zero(t, change.Rows)
	_, err = table.Republish(t.Context(), f.conn, Selection{Since: time.Now()}, false)
	require.ErrorContains(t, err, "has no published_at")
	n, err := table.RetryDead(t.Context(), f.conn, DeadSelection{})
	require.NoError(t, err)
	require.Zero(t, n, "somebody has cancelled it")
	f.start()
	f.offer(cancelled, null, f.row(&bookings, "c", "c"))
	f.pubs["fifo"].wait(t, 1)
	f.waitPending(&bookings, "0")
	require.Equal(t, []string{"settled", "settled"}, f.ids(`SELECT a.what FROM (`+table.sql.answers+`) a(id, what, due, sink, key, route)`,
		[]string{cancelled, null}, []*int64{nil, nil}, openRooms), "nobody asks for them again")
	require.Equal(t, "CANCELLED - PUBLISHED", f.statuses())
	f.explain(cancelled).says(t, StateForeign, "is CANCELLED, which is neither of PENDING, PROCESSING, PUBLISHED and FAILED", "set it to PENDING")
	f.explain(null).says(t, StateForeign, "is NULL")
	f.exec(`UPDATE booked SET status = 'FAILED' WHERE id::text = $1`, null)
	f.explain(null).says(t, StateDiscarded, "status is FAILED")
	require.Len(t, f.pubs["fifo"].messages(), 1)
}

func TestRetryInFlightKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, bookings.outbox, bookings.ddl...)
	id := f.booked("a", "PROCESSING", "now()")
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ('public.booked', $1, 2, now()), ('public.booked', '77', 2, now())`, id)
	f.exec(f.relay.Tables()[0].OrphanedFailures())
	require.Equal(t, []string{id}, f.ids(`SELECT row_id FROM pgrelay.failures`))
}

// flight is a delivery as if a claim had just taken the row and found it in the version that it has.
func (s *stamping) flight(id string, claim bool) *delivery {
	s.t.Helper()
	d := &delivery{table: s.table, epoch: 7, size: 10, row: Row{ID: id}, found: s.one(`SELECT xmin::text FROM booked WHERE id::text = $1`, id)}
	s.exec(`UPDATE booked SET status = 'PROCESSING', claimed_at = now() WHERE id::text = $1`, id)
	d.row.Version = s.one(`SELECT xmin::text FROM booked WHERE id::text = $1`, id)
	if claim {
		require.NoError(s.t, s.conn.QueryRow(context.Background(), `INSERT INTO pgrelay.claims (outbox, instance, epoch, ids) VALUES ('public.booked', $1, 7, $2) RETURNING id`,
			s.relay.instance, []string{id}).Scan(&d.claim))
	}
	s.relay.flights.add([]*delivery{d})
	return d
}

func newStatusStamping(t *testing.T) *stamping {
	t.Helper()
	f := newFixture(t, bookings.outbox, bookings.ddl...)
	s := &stamping{fixture: f, table: f.relay.Tables()[0], o: f.relay.outboxes[0], stamper: f.relay.stamper}
	s.stamper.conn = s.session()
	f.exec(`INSERT INTO pgrelay.leader (instance, epoch) VALUES ($1, 7)`, f.relay.instance)
	f.relay.enter(lead{epoch: 7})
	return s
}

func TestStampSetsBackWhatChangedWhileItWasProcessed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, answer, status string }{
		"another column":     {`body = 'new'`, "changed", "PENDING"},
		"set back by hand":   {`status = 'PENDING'`, "changed", "PENDING"},
		"settled by another": {`status = 'PUBLISHED'`, "settled", "PUBLISHED"},
		"cancelled":          {`status = 'CANCELLED'`, "settled", "CANCELLED"},
		"emptied":            {`status = NULL`, "settled", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStatusStamping(t)
			for outcome, v := range map[string]verdict{"delivered": delivered, "retry": retried, "dead": died, "uncertain": {kind: verdictUncertain, reason: "x"}, "back": {}} {
				s.exec(`TRUNCATE booked`)
				d := s.flight(s.row(&bookings, "x", "a"), true)
				s.exec(`UPDATE booked SET ` + c.change)
				answer := c.answer
				if outcome == "back" {
					answer = "done"
				}
				require.Equal(t, answer, s.stamp(ended(d, v))[d.row.ID], outcome)
				require.Equal(t, c.status, s.statuses(), outcome)
				require.Empty(t, s.claims(), outcome)
				require.Equal(t, "0", s.one(`SELECT attempts::text FROM booked`), outcome)
			}
		})
	}
}

func TestEachOutcomeHasItsStatus(t *testing.T) {
	t.Parallel()
	s := newStatusStamping(t)
	var ds []*delivery
	for range 6 {
		ds = append(ds, s.flight(s.row(&bookings, "x", "a"), true))
	}
	s.stamp(ended(ds[0], delivered), ended(ds[1], retried), ended(ds[2], unsure), ended(ds[3], died), ended(ds[4], verdict{}), ended(ds[5], verdict{kind: verdictUncertain, reason: "x"}))
	require.Equal(t, "PUBLISHED PENDING PENDING FAILED PENDING FAILED", s.statuses())
	require.Equal(t, "1 1 0 1", s.one(`SELECT concat_ws(' ', count(*) FILTER (WHERE uncertain), count(*) FILTER (WHERE dead_at IS NOT NULL AND NOT uncertain),
		sum(attempts) FILTER (WHERE unknowns > 0), sum(attempts) FILTER (WHERE dead_at IS NULL)) FROM pgrelay.failures`))
}

func TestRowThatGoesBackAndIsLockedStaysInItsClaim(t *testing.T) {
	t.Parallel()
	s := newStatusStamping(t)
	d := s.flight(s.row(&bookings, "x", "a"), true)
	tx, err := s.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM booked FOR UPDATE`)
	require.NoError(t, err)
	require.Equal(t, "locked", s.stamp(ended(d, verdict{}))[d.row.ID], "its row has to be set back")
	require.NotEmpty(t, s.claims())
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "done", s.stamp(d)[d.row.ID])
	require.Equal(t, "PENDING", s.statuses())
}

func TestDeliveredRowWhoseClaimACrashOfTheServerTookBackIsMarked(t *testing.T) {
	t.Parallel()
	s := newStatusStamping(t)
	lost, changed, kept := s.row(&bookings, "x", "a"), s.row(&bookings, "x", "b"), s.row(&bookings, "x", "c")
	version := func(id string) string { return s.one(`SELECT xmin::text FROM booked WHERE id::text = $1`, id) }
	back := func(id, found string) *delivery { // as if the claim had never been
		d := &delivery{table: s.table, epoch: 7, row: Row{ID: id, Version: "3"}, found: found}
		s.relay.flights.add([]*delivery{d})
		return ended(d, delivered)
	}
	ds := []*delivery{back(lost, version(lost)), back(changed, "3"), ended(s.flight(kept, false), delivered)}
	s.stamper.stampAll(t.Context(), s.o, ds)
	require.Equal(t, "PUBLISHED PENDING PUBLISHED", s.statuses())
}

func TestReleaseSetsBackTheRowsOfADeadProcessAndThoseNobodyKnowsOf(t *testing.T) {
	t.Parallel()
	s := newStatusStamping(t)
	crashed := s.flight(s.row(&bookings, "x", "a"), true)
	s.exec(`UPDATE pgrelay.claims SET instance = $1, alone = true`, uuid.New())
	dies := s.flight(s.row(&bookings, "x", "b"), true)
	s.exec(`UPDATE pgrelay.claims SET instance = $1, alone = true WHERE id = $2`, uuid.New(), dies.claim)
	s.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ('public.booked', $1, 2, now())`, dies.row.ID)
	held := s.flight(s.row(&bookings, "x", "c"), true)
	unknown := s.flight(s.row(&bookings, "x", "d"), true) // the reply of its claim was lost
	theirs := s.booked("a worker's", "PROCESSING", "now()")
	s.relay.flights.remove([]*delivery{crashed, dies, unknown})
	l := &leader{conn: s.session(), instance: s.relay.instance, epoch: 7}
	rows, err := l.release(t.Context(), s.table, s.relay.flights.held(s.table), 3)
	require.NoError(t, err)
	require.ElementsMatch(t, []released{{crashed.row.ID, "", false}, {dies.row.ID, "", true}}, rows)
	require.Equal(t, "PENDING FAILED PROCESSING PENDING PROCESSING", s.statuses())
	require.Equal(t, fmt.Sprintf("%d:%s", held.claim, held.row.ID), s.claims())
	require.Equal(t, "1 crashed: the relay died while this row alone was in flight", s.one(`SELECT attempts || ' ' || last_error FROM booked WHERE id::text = $1`, crashed.row.ID))
	require.Equal(t, "3", s.one(`SELECT attempts::text FROM booked WHERE id::text = $1`, dies.row.ID))
	s.explain(theirs).says(t, StateTaken)
}

// worker is one as people write it: it takes pending rows by their status, and holds no lock while it sends.
func worker(ctx context.Context, conn *pgx.Conn, send func(id string)) error {
	for ctx.Err() == nil {
		rows, err := conn.Query(ctx, `UPDATE booked SET status = 'PROCESSING', claimed_at = now() WHERE id IN (
			SELECT id FROM booked WHERE status = 'PENDING' ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING id::text`)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, id := range ids {
			send(id)
			if _, err := conn.Exec(ctx, `UPDATE booked SET status = 'PUBLISHED' WHERE id::text = $1`, id); err != nil {
				return err
			}
		}
		if len(ids) == 0 {
			return nil
		}
	}
	return nil
}

func TestOldWorkerAndRelayShareATableByItsStatus(t *testing.T) {
	t.Parallel()
	outbox := bookings.outbox
	outbox.Routes = withBody("queue", "")
	f := newFixture(t, outbox, bookings.ddl...)
	f.exec(`INSERT INTO booked (body) SELECT n::text FROM generate_series(1, 2000) n`)
	f.start()
	look := func() { f.offer(first(f, f.relay.Tables()[0].FirstLook(), f.relay.rooms())...) }
	look() // a part of the rows, so that the relay has its share
	f.pubs["queue"].wait(t, 1)
	var mu sync.Mutex
	sent := map[string]int{}
	done := make(chan error, 1)
	conn := f.db.Connect(t)
	go func() {
		done <- worker(t.Context(), conn, func(id string) {
			mu.Lock()
			defer mu.Unlock()
			sent[id]++
		})
	}()
	pgtest.Eventually(t, longEnough, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(sent) > 0
	}, "the worker has its share")
	pgtest.Eventually(t, longEnough, func() error { // as the poller does
		look()
		if pending := f.one(bookings.pending); pending != "0" {
			return fmt.Errorf("%s rows are left", pending)
		}
		return nil
	}, "all rows are sent by either")
	require.NoError(t, <-done)
	for _, m := range f.pubs["queue"].messages() {
		sent[f.one(`SELECT id::text FROM booked WHERE body = $1`, m.Body)]++
	}
	require.Len(t, sent, 2000)
	for id, n := range sent {
		require.Equal(t, 1, n, "row %s", id)
	}
}

func TestRowsThatAWorkerHasLockedAreSkippedWhateverTheirStatus(t *testing.T) {
	t.Parallel()
	f := newFixture(t, bookings.outbox, bookings.ddl...)
	locked, free := f.row(&bookings, "locked", "a"), f.row(&bookings, "free", "b")
	tx, err := f.db.Connect(t).Begin(t.Context()) // it holds the lock while it sends
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM booked WHERE id::text = $1 FOR UPDATE`, locked)
	require.NoError(t, err)
	f.start()
	f.offer(locked, free)
	f.awaitState(free, StatePublished)
	f.explain(locked).says(t, StateLocked)
	_, err = tx.Exec(t.Context(), `UPDATE booked SET status = 'PUBLISHED' WHERE id::text = $1`, locked)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	f.awaitState(locked, StatePublished)
	require.NoError(t, f.stop())
	require.Equal(t, []string{"free"}, f.pubs["fifo"].bodies())
}
