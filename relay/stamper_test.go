package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// stamping is the stamp stage alone: rows and claims are made by the test.
type stamping struct {
	*fixture
	table   *Table
	o       *outbox
	stamper *stamper
}

func newStamping(t *testing.T) *stamping {
	t.Helper()
	f := newFixture(t, withLedger)
	s := &stamping{fixture: f, table: f.relay.Tables()[0], o: f.relay.outboxes[0], stamper: f.relay.stamper}
	s.stamper.conn = s.session()
	f.exec(`INSERT INTO pgrelay.leader (instance, epoch) VALUES ($1, 7)`, f.relay.instance)
	f.relay.enter(lead{epoch: 7})
	return s
}

// session is one with the relay's settings.
func (s *stamping) session() *pgx.Conn {
	s.t.Helper()
	base, err := pgx.ParseConfig(s.db.URL)
	require.NoError(s.t, err)
	conn, err := pgx.ConnectConfig(s.t.Context(), SessionConfig(base, "pgrelay test"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { CloseSession(conn) })
	return conn
}

// claimed makes rows and one claim of them, in the lead of epoch 7.
func (s *stamping) claimed(kind string, n int) []*delivery {
	s.t.Helper()
	return s.claim(s.ids(insertEvents, kind, "k", n)...)
}

func (s *stamping) claim(ids ...string) []*delivery {
	s.t.Helper()
	var claim int64
	require.NoError(s.t, s.conn.QueryRow(context.Background(), `INSERT INTO pgrelay.claims (outbox, instance, epoch, ids) VALUES ('pgrelay.outbox_events', $1, 7, $2) RETURNING id`,
		s.relay.instance, ids).Scan(&claim))
	ds := make([]*delivery, len(ids))
	for i, id := range ids {
		key := "k"
		ds[i] = &delivery{table: s.table, claim: claim, epoch: 7, size: 10, line: "k", row: Row{
			ID: id, Kind: "f", OrderingKey: &key, Version: s.one(`SELECT xmin::text FROM pgrelay.outbox_events WHERE id::text = $1`, id)}, route: 1}
	}
	s.relay.flights.add(ds)
	return ds
}

func (s *stamping) stamp(ds ...*delivery) map[string]string {
	s.t.Helper()
	answers, err := s.stamper.stamp(s.t.Context(), s.table, ds)
	require.NoError(s.t, err)
	return answers
}

// state is a row's mark and its failure.
func (s *stamping) state(d *delivery) string {
	s.t.Helper()
	return s.one(`SELECT concat_ws(' ', CASE WHEN o.published_at IS NOT NULL THEN 'published' WHEN o.dead_at IS NOT NULL THEN 'dead' ELSE 'pending' END,
		'attempts=' || f.attempts, 'unknowns=' || f.unknowns, 'crashes=' || nullif(f.crashes, 0), CASE WHEN f.row_id IS NOT NULL THEN 'generation=' || (f.generation IS NOT NULL)::text END,
		CASE WHEN f.dead_at IS NOT NULL THEN 'failed' WHEN f.next_attempt_at > now() THEN 'waits' WHEN f.next_attempt_at IS NOT NULL THEN 'due' END, nullif(f.reason, ''))
		FROM pgrelay.outbox_events o LEFT JOIN pgrelay.failures f ON f.row_id = o.id::text WHERE o.id::text = $1`, d.row.ID)
}

func (s *stamping) claims() string {
	s.t.Helper()
	return s.one(`SELECT coalesce(string_agg(id || ':' || array_to_string(ids, ','), ' ' ORDER BY id), '') FROM pgrelay.claims`)
}

func ended(d *delivery, v verdict) *delivery { d.verdict = v; return d }

var (
	delivered = verdict{kind: verdictDelivered}
	retried   = verdict{kind: verdictRetry, delay: time.Minute, reason: "refused", detail: "no"}
	unsure    = verdict{kind: verdictUnknown, delay: time.Minute, reason: "no_answer"}
	died      = verdict{kind: verdictDead, reason: "too_large", detail: "too large"}
	doubtful  = verdict{kind: verdictUncertain, reason: "uncertain", detail: "no answer"}
)

func TestStampGivesEachOutcomeItsMark(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	ds := s.claimed("f", 7)
	s.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 2, now()), ('pgrelay.outbox_events', $2, 2, now())`, ds[4].row.ID, ds[1].row.ID)
	ds[4].had, ds[1].had = true, true
	ds[5].unsent = true
	answers := s.stamp(ended(ds[0], delivered), ended(ds[1], retried), ended(ds[2], unsure), ended(ds[3], verdict{}), ended(ds[4], delivered), ended(ds[5], died), ended(ds[6], doubtful))
	require.Len(t, answers, 7)
	for id, what := range answers {
		require.Equal(t, "done", what, id)
	}
	for i, want := range []string{
		"published",
		"pending attempts=3 unknowns=0 generation=false waits refused",
		"pending attempts=0 unknowns=1 generation=false waits no_answer",
		"pending",
		"published",
		"dead attempts=0 unknowns=0 generation=false failed too_large",
		"dead attempts=0 unknowns=1 generation=false failed uncertain",
	} {
		require.Equal(t, want, s.state(ds[i]), i)
	}
	require.Equal(t, ds[6].row.ID, s.one(`SELECT string_agg(row_id, ' ') FROM pgrelay.failures WHERE uncertain`))
	require.Equal(t, "UNCERTAIN", s.one(`SELECT status FROM pgrelay.outbox_event_status WHERE id::text = $1`, ds[6].row.ID))
	counts, err := s.table.Count(t.Context(), s.conn)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{counts.Dead, counts.Uncertain})
	letters, err := s.table.Dead(t.Context(), s.conn, DeadSelection{})
	require.NoError(t, err)
	require.Len(t, letters, 1, "an uncertain row is no dead letter")
	require.Empty(t, s.claims())
}

func TestStampOfAClaimThatIsGoneOrOfAnotherLeadDoesNothing(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	gone, other := s.claimed("f", 2), s.claimed("f", 2)
	s.exec(`DELETE FROM pgrelay.claims WHERE id = $1`, gone[0].claim)
	s.exec(`UPDATE pgrelay.claims SET epoch = 8 WHERE id = $1`, other[0].claim)
	require.Empty(t, s.stamp(ended(gone[0], delivered), ended(gone[1], died), ended(other[0], retried), ended(other[1], delivered)))
	for _, d := range append(gone, other...) {
		require.Equal(t, "pending", s.state(d))
	}
	require.Equal(t, fmt.Sprintf("%d:%s,%s", other[0].claim, other[0].row.ID, other[1].row.ID), s.claims())
}

func TestStampTakesOneClaimApartInAnyOrder(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	ds := s.claimed("f", 3)
	more := s.claimed("f", 1)
	s.stamp(ended(ds[1], delivered), ended(more[0], delivered))
	require.Equal(t, fmt.Sprintf("%d:%s,%s", ds[0].claim, ds[0].row.ID, ds[2].row.ID), s.claims())
	require.Empty(t, s.stamp(ended(ds[1], died)), "what was taken out is not stamped again")
	require.Equal(t, "published", s.state(ds[1]))
	s.stamp(ended(ds[2], retried), ended(ds[0], delivered))
	require.Empty(t, s.claims())
}

func TestStampOfAnIDInTwoClaimsGoesByTheOneThatHoldsIt(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	old := s.claimed("f", 1)[0]
	now := s.claim(old.row.ID)[0] // as after a release whose claim a server crash brought back
	require.Equal(t, "done", s.stamp(ended(now, retried))[now.row.ID])
	require.Equal(t, "done", s.stamp(ended(old, retried))[old.row.ID])
	require.Equal(t, "pending attempts=2 unknowns=0 generation=false waits refused", s.state(old), "each claim counts once")
}

func TestNoClaimCountsTwice(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	d := s.claimed("f", 1)[0]
	s.stamp(ended(d, retried))
	s.exec(`INSERT INTO pgrelay.claims (id, outbox, instance, epoch, ids) OVERRIDING SYSTEM VALUE VALUES ($1, 'pgrelay.outbox_events', $2, 7, $3)`, d.claim, s.relay.instance, []string{d.row.ID})
	s.stamp(d)
	require.Equal(t, "pending attempts=1 unknowns=0 generation=false waits refused", s.state(d))
}

func TestClaimIDThatACrashOfTheServerGaveOutAgainCountsInItsNewLead(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	d := s.claimed("f", 1)[0]
	s.stamp(ended(d, retried))
	s.exec(`INSERT INTO pgrelay.claims (id, outbox, instance, epoch, ids) OVERRIDING SYSTEM VALUE VALUES ($1, 'pgrelay.outbox_events', $2, 8, $3)`,
		d.claim, s.relay.instance, []string{d.row.ID})
	d.epoch = 8
	s.stamp(ended(d, retried))
	require.Equal(t, "pending attempts=2 unknowns=0 generation=false waits refused", s.state(d))
}

func TestStampOfARowThatChangedTakesNoOutcome(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]verdict{"delivered": delivered, "retry": retried, "unknown": unsure, "dead": died, "uncertain": doubtful} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStamping(t)
			d := s.claimed("f", 1)[0]
			s.exec(`UPDATE pgrelay.outbox_events SET payload = '2'`)
			require.Equal(t, "changed", s.stamp(ended(d, v))[d.row.ID])
			require.Equal(t, "pending attempts=0 unknowns=0 generation=true due", s.state(d))
			require.Empty(t, s.claims())
		})
	}
}

func TestStampOfARowThatSomebodySettledOrDeletedLetsItGo(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	ds := s.claimed("f", 2)
	s.exec(`UPDATE pgrelay.outbox_events SET dead_at = now() WHERE id::text = $1`, ds[0].row.ID)
	s.exec(`DELETE FROM pgrelay.outbox_events WHERE id::text = $1`, ds[1].row.ID)
	answers := s.stamp(ended(ds[0], retried), ended(ds[1], retried))
	require.Equal(t, map[string]string{ds[0].row.ID: "settled", ds[1].row.ID: "gone"}, answers)
	require.Equal(t, "dead", s.state(ds[0]))
	require.Empty(t, s.claims())
	require.Equal(t, "0", s.one(`SELECT count(*)::text FROM pgrelay.failures`))
}

func TestStampPassesOverLockedRowsAndKeepsTheirClaim(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	ds := s.claimed("f", 3)
	tx, err := s.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM pgrelay.outbox_events WHERE id::text = ANY ($1) FOR UPDATE`, []string{ds[1].row.ID, ds[2].row.ID})
	require.NoError(t, err)
	answers := s.stamp(ended(ds[0], delivered), ended(ds[1], delivered), ended(ds[2], verdict{}))
	require.Equal(t, map[string]string{ds[0].row.ID: "done", ds[1].row.ID: "locked", ds[2].row.ID: "done"}, answers)
	require.Equal(t, fmt.Sprintf("%d:%s", ds[1].claim, ds[1].row.ID), s.claims(), "what goes back needs no row")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "done", s.stamp(ds[1])[ds[1].row.ID])
	require.Equal(t, "published", s.state(ds[1]))
	require.Empty(t, s.claims())
}

func TestRefusedStampIsReadBackByWhetherOthersHaveLed(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	ds := s.claimed("f", 4)
	s.exec(`DELETE FROM pgrelay.claims`)
	s.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE id::text = $1`, ds[0].row.ID) // an earlier stamp whose reply was lost
	s.exec(`UPDATE pgrelay.outbox_events SET payload = '5' WHERE id::text = $1`, ds[1].row.ID)
	for _, d := range ds[:3] {
		ended(d, delivered)
	}
	s.stamper.stampAll(t.Context(), s.o, append(ds[:3:3], ended(ds[3], retried)))
	require.Equal(t, "published", s.state(ds[0]))
	require.Equal(t, "pending", s.state(ds[1]), "it was changed")
	require.Equal(t, "published", s.state(ds[2]), "nobody else has led: what is known to be delivered is marked")
	require.Equal(t, "pending", s.state(ds[3]), "of what is not known nothing is remembered")
	require.Equal(t, []string{ds[2].row.ID}, s.ids(events))
	rows, _ := s.relay.flights.inFlight()
	require.Zero(t, rows)
	require.Equal(t, 4, s.o.inbox.size(), "all are asked for again")

	d := s.claimed("f", 1)[0]
	s.exec(`UPDATE pgrelay.claims SET instance = gen_random_uuid(), epoch = 8`)
	s.exec(`UPDATE pgrelay.leader SET instance = gen_random_uuid(), epoch = 8`)
	s.stamper.stampAll(t.Context(), s.o, []*delivery{ended(d, delivered)})
	require.Equal(t, "pending", s.state(d), "another has led")

	s.exec(`UPDATE pgrelay.leader SET instance = $1, epoch = 9`, s.relay.instance)
	s.relay.enter(lead{epoch: 9})
	s.relay.flights.add([]*delivery{d})
	s.stamper.stampAll(t.Context(), s.o, []*delivery{ended(d, delivered)})
	require.Equal(t, "pending", s.state(d), "another has led since the claim, though not last")
}

func TestRowWhoseStampTheTableRefusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	s.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.payload = '3' THEN RAISE 'not this one'; END IF; RETURN NEW; END $$`)
	s.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON pgrelay.outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()`)
	ds := s.claimed("f", 9)
	for _, d := range ds {
		ended(d, delivered)
	}
	s.stamper.stampAll(t.Context(), s.o, ds)
	require.Equal(t, "8", s.one(`SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NOT NULL`))
	require.Nil(t, s.o.hush.problem())
	s.exec(`DROP TRIGGER refuse ON pgrelay.outbox_events`)
	_, again := s.stamper.take(time.Now().Add(time.Minute))
	require.Len(t, again, 1)
	s.stamper.stampAll(t.Context(), s.o, again)
	require.Equal(t, "published", s.state(ds[2]))
}

func TestNothingIsClaimedWhileTheStampsSessionIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	var refused atomic.Int64
	var letIn atomic.Bool
	f.relay.cfg.Conn.ValidateConnect = func(_ context.Context, conn *pgconn.PgConn) error {
		if conn.ParameterStatus("application_name") != "pgrelay stamp" || letIn.Load() {
			return nil
		}
		refused.Add(1)
		return errors.New("too many connections")
	}
	f.start()
	f.offer(f.ids(insertEvents, "q", nil, 1)...)
	pgtest.Eventually(t, longEnough, f.relay.stamper.away.Load, "it has something to stamp and is refused")
	before := refused.Load()
	f.offer(f.ids(insertEvents, "q", nil, 20)...)
	pgtest.Eventually(t, longEnough, func() bool { return refused.Load() > before+2 }, "a while passes")
	require.Equal(t, "1", f.one(`SELECT sum(cardinality(ids))::text FROM pgrelay.claims`))
	require.Len(t, f.pubs["queue"].messages(), 1)
	letIn.Store(true)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 21)
}

func TestTableThatRefusesEveryStampIsLeftAloneSoon(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	s.exec(`ALTER TABLE pgrelay.outbox_events ADD CHECK (published_at IS NULL)`)
	ds := s.claimed("f", 200)
	for _, d := range ds {
		ended(d, delivered)
	}
	s.stamper.stampAll(t.Context(), s.o, ds)
	require.Error(t, s.o.hush.problem())
	require.Len(t, s.stamper.locked[s.o].ds, faultyMost)
	require.Len(t, s.stamper.done[s.o], 200-faultyMost)
}

func TestDetailThatNoTextColumnTakesIsStoredAllTheSame(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	d := s.claimed("f", 1)[0]
	s.stamp(ended(d, verdict{kind: verdictRetry, reason: "refused", detail: "a\x00b\xffc…"}))
	require.Equal(t, "ab\uFFFDc…", s.one(`SELECT detail FROM pgrelay.failures`))
}

func TestLaterLockedRowsDoNotPutOffEarlierOnes(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	ds := s.claimed("f", 3)
	now := time.Now()
	s.stamper.keepLocked(s.o, ds[:1], now)
	for i := range 100 {
		s.stamper.keepLocked(s.o, ds[1:2], now.Add(time.Duration(i)*time.Millisecond))
	}
	require.Equal(t, now.Add(lockedWait), s.stamper.locked[s.o].at)
}

func TestRowThatDiedBeforeItsTurnHidesNoEarlierOne(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	ds := s.claimed("f", 2)
	ds[1].unsent = true
	s.stamper.stampAll(t.Context(), s.o, []*delivery{ended(ds[1], died)})
	_, known := s.relay.recent.lows.Get(ds[0].lineKey())
	require.False(t, known, "the first of the line is still pending")
}

func TestReleaseTakesUpTheRowsOfOthersAndCountsACrash(t *testing.T) {
	t.Parallel()
	s := newStamping(t)
	ids := s.ids(insertEvents, "f", "k", 7)
	foreign := func(alone bool, ids ...string) {
		s.exec(`INSERT INTO pgrelay.claims (outbox, instance, epoch, ids, alone) VALUES ('pgrelay.outbox_events', $1, 6, $2, $3)`, uuid.New(), ids, alone)
	}
	foreign(false, ids[0], ids[1])
	foreign(true, ids[2])
	s.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, crashes, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 2, 4, now())`, ids[3])
	foreign(true, ids[3])
	s.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE id::text = $1`, ids[1])
	mine, lost := s.claim(ids[4], ids[6]), s.claim(ids[5])
	s.relay.flights.remove(lost)
	s.relay.flights.remove(mine[1:]) // as if its stamp had been taken back
	s.exec(`INSERT INTO pgrelay.claims (outbox, instance, epoch, ids) VALUES ('public.other', $1, 6, '{1}')`, uuid.New())

	l := &leader{conn: s.session(), instance: s.relay.instance, epoch: 7}
	rows, err := l.release(t.Context(), s.table, s.relay.flights.held(s.table), 3)
	require.NoError(t, err)
	require.ElementsMatch(t, []released{{ids[0], "f", false}, {ids[2], "f", false}, {ids[3], "f", true}}, rows)
	for i, want := range []string{
		"pending attempts=0 unknowns=0 crashes=1 generation=false due crashed",
		"published",
		"pending attempts=1 unknowns=0 crashes=1 generation=false due crashed",
		"dead attempts=3 unknowns=0 crashes=5 generation=false failed crashed",
		"pending",
		"pending",
	} {
		require.Equal(t, want, s.state(&delivery{row: Row{ID: ids[i]}}), i)
	}
	require.Equal(t, fmt.Sprint(mine[0].claim), s.one(`SELECT id::text FROM pgrelay.claims WHERE outbox = 'pgrelay.outbox_events'`))
	require.NoError(t, l.forgetUnknown(t.Context(), []string{"pgrelay.outbox_events"}))
	require.Equal(t, fmt.Sprintf("%d:%s", mine[0].claim, ids[4]), s.claims())
}
