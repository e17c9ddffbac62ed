package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// explain asks as the command does, the relay included if it runs.
func (f *fixture) explain(id string) Explanation {
	f.t.Helper()
	around := Surroundings{MaxAttempts: testLimits.Retry.MaxAttempts, Interval: time.Second}
	if f.stop != nil {
		state := f.relay.State()
		around.Running = &state
	}
	e, err := f.relay.Tables()[0].Explain(f.t.Context(), f.conn, id, around)
	require.NoError(f.t, err)
	require.Equal(f.t, id, e.ID)
	require.NotEmpty(f.t, e.Text)
	return e
}

// says checks an explanation's state and what its text and notes say.
func (e Explanation) says(t *testing.T, state RowState, words ...string) {
	t.Helper()
	require.Equal(t, state, e.State, e.Text)
	for _, w := range words {
		require.Contains(t, e.Text+"\n"+strings.Join(e.Notes, "\n"), w)
	}
}

// insert adds a row that is available at a time, written in SQL.
func (f *fixture) insert(kind, key, available string) string {
	f.t.Helper()
	return f.one(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, available_at)
		VALUES ($1, nullif($2, ''), '1', `+available+`) RETURNING id::text`, kind, key)
}

func (f *fixture) awaitState(id string, state RowState) Explanation {
	f.t.Helper()
	var e Explanation
	pgtest.Eventually(f.t, longEnough, func() error {
		if e = f.explain(id); e.State != state {
			return fmt.Errorf("%s: %s", e.State, e.Text)
		}
		return nil
	}, "row %s is %s", id, state)
	return e
}

const ownFlags = " --table pgrelay.outbox_events --id "

func TestExplainOfARowThatIsNotThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.explain("4711").says(t, StateNoRow, "has not committed yet", "retention.published")
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, dead_at, reason) VALUES ('pgrelay.outbox_events', '4711', 3, now(), 'internal_error')`)
	f.explain("4711").says(t, StateNoRow, "after 3 attempts: internal_error", "pgrelay dead discard"+ownFlags+"4711")
	_, err := f.relay.Tables()[0].Explain(t.Context(), f.conn, "many", Surroundings{})
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
}

func TestExplainOfSettledRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	published, dead := f.insert("q", "", "NULL"), f.insert("strange", "", "NULL")
	discarded, uncertain := f.insert("strange", "", "NULL"), f.insert("strange", "", "NULL")
	f.offer(published, dead, discarded, uncertain)
	f.settled(0)
	e := f.explain(published)
	e.says(t, StatePublished, "pgrelay republish"+ownFlags+published)
	require.WithinDuration(t, time.Now(), *e.Since, time.Minute)
	e = f.explain(dead)
	e.says(t, StateDead, "after 0 attempts: unknown_kind: no route", "pgrelay dead retry"+ownFlags+dead)
	require.Equal(t, "unknown_kind", e.Reason)
	_, err := f.relay.Tables()[0].DiscardDead(t.Context(), f.conn, DeadSelection{IDs: []string{discarded}})
	require.NoError(t, err)
	f.explain(discarded).says(t, StateDiscarded, "pgrelay republish"+ownFlags+discarded)
	f.exec(`UPDATE pgrelay.failures SET uncertain = true, reason = 'no_answer' WHERE row_id = $1`, uncertain)
	f.explain(uncertain).says(t, StateUncertain, "no_answer", "pgrelay republish"+ownFlags+uncertain)
	f.exec(`UPDATE pgrelay.failures SET reason = 'uncertain', detail = 'uncertain: it was claimed' WHERE row_id = $1`, uncertain)
	f.explain(uncertain).says(t, StateUncertain, "after 0 attempts: uncertain: it was claimed.")
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE id::text = $1`, dead)
	f.explain(dead).says(t, StatePublished, "left over", "pgrelay dead discard"+ownFlags+dead)
}

func TestExplainOfADeadRowWithoutADeadMark(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Outbox{Table: `"My Outbox"`, Routes: []config.Route{{Kind: "q", To: "queue", Body: "{}"}}},
		`CREATE TABLE "My Outbox" (id text PRIMARY KEY, event_type text, published_at timestamp)`,
		`INSERT INTO "My Outbox" VALUES ('it''s', 'strange'), ('fine', 'q')`)
	f.start()
	f.offer("it's", "fine")
	f.awaitState("it's", StateDead).says(t, StateDead, `pgrelay dead retry --table 'public."My Outbox"' --id 'it'\''s'`)
	f.awaitState("fine", StatePublished)
}

func TestExplainOfARowInFlight(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'frozen for the audit' USING ERRCODE = '42501'; END$$`)
	pub := f.pubs["fifo"]
	pub.hold = make(chan struct{})
	f.start()
	first, second := f.insert("f", "k", "NULL"), f.insert("f", "k", "NULL")
	f.offer(first)
	e := f.awaitState(first, StateInFlight)
	e.says(t, StateInFlight, f.relay.Instance().String()+", which leads", "fifo answers")
	require.Empty(t, e.Notes)
	e = f.explain(second)
	e.says(t, StateBehind, "Row "+first, "in flight")
	require.Equal(t, StateInFlight, e.HeldBy.State)
	tx := f.transaction(`SELECT FROM pgrelay.outbox_events WHERE id::text = $1 FOR UPDATE`, first)
	f.explain(first).says(t, StateInFlight, "its row is locked by the transaction of backend")
	require.NoError(t, tx.Rollback(t.Context()))
	f.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON pgrelay.outbox_events EXECUTE FUNCTION refuse()`)
	close(pub.hold)
	pgtest.Eventually(t, longEnough, func() bool {
		return strings.Contains(strings.Join(f.explain(first).Notes, "\n"), "frozen for the audit")
	}, "the stamp is refused")
	f.exec(`DROP TRIGGER refuse ON pgrelay.outbox_events`)
	f.awaitState(first, StatePublished)
}

func TestExplainOfARowThatADeadInstanceClaimed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	id := f.insert("q", "", "NULL")
	claim := `INSERT INTO pgrelay.claims (outbox, instance, ids) VALUES ('pgrelay.outbox_events', gen_random_uuid(), ARRAY[$1])`
	f.exec(claim, id)
	f.explain(id).says(t, StateAbandoned, "Start `pgrelay run`")
	f.start()
	f.offer(id)
	f.settled(0)
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = NULL`)
	f.exec(claim, id)
	f.explain(id).says(t, StateAbandoned, "instance "+f.relay.Instance().String()+" does")
}

func TestExplainOfRowsThatNobodyRelays(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	id := f.insert("q", "", "NULL")
	f.explain(id).says(t, StateNoLeader, "no instance leads. Start `pgrelay run`")
	f.explain(f.insert("strange", "", "NULL")).says(t, StateNoRoute, `matches its kind "strange"`, "no instance leads")
	f.exec(`INSERT INTO pgrelay.leader (instance, epoch, seen_at) VALUES ('11111111-2222-3333-4444-555555555555', 1, now() - interval '1 hour')`)
	f.explain(id).says(t, StateNoLeader, "11111111-2222-3333-4444-555555555555", "1 hour ago")
}

func TestExplainOfDeferredRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	e := f.explain(f.insert("f", "k", "now() + interval '90 minutes'"))
	e.says(t, StateDeferred, "1 hour from now")
	require.WithinDuration(t, time.Now().Add(90*time.Minute), *e.Until, time.Minute)
	f.explain(f.insert("f", "k", "'infinity'")).says(t, StateDeferred, "for ever")
	f.explain(f.insert("f", "k", "NULL")).says(t, StateFree)
}

func TestExplainOfARowThatWaitsForItsRetryAndOfThoseBehindIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.pubs["fifo"].script(func(m *Message) Result {
		return Result{Outcome: OutcomeRetry, Reason: "internal_error", Detail: "refused."}
	})
	f.start()
	first, second := f.insert("f", "k", "NULL"), f.insert("f", "k", "NULL")
	due, other := f.insert("f", "k", "now() - interval '1 minute'"), f.insert("f", "other", "NULL")
	f.offer(first)
	pgtest.Eventually(t, longEnough, func() bool { return f.explain(first).Attempts == 1 }, "it was tried")
	f.exec(`UPDATE pgrelay.failures SET next_attempt_at = now() + interval '5 minutes'`)
	e := f.explain(first)
	e.says(t, StateRetrying, "minutes from now", "1 of 3 attempts failed; the last with internal_error: refused.")
	require.Equal(t, "internal_error", e.Reason)
	for _, id := range []string{second, due} {
		e = f.explain(id)
		e.says(t, StateBehind, "Row "+first, "that row is retrying")
		require.Equal(t, first, e.HeldBy.ID)
		e.HeldBy.says(t, StateRetrying, "1 of 3")
	}
	f.explain(other).says(t, StateFree)
	f.exec(`UPDATE pgrelay.failures SET attempts = 0, unknowns = 2, reason = 'timeout', detail = ''`)
	f.explain(first).says(t, StateRetrying, "2 sends had an unknown outcome, which costs no attempt; the last with timeout.")
	f.exec(`UPDATE pgrelay.outbox_events SET available_at = now() - interval '1 minute' WHERE id::text = $1`, first)
	f.explain(second).says(t, StateBehind, "Row "+first)
	f.exec(`UPDATE pgrelay.outbox_events SET available_at = now() + interval '1 minute' WHERE id::text = $1`, first)
	f.explain(second).says(t, StateFree)
}

func TestExplainGoesByTheOrderOfTheOutbox(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Outbox{Table: "events", OrderBy: []string{"day", "seq"}, Routes: []config.Route{{Kind: "*", To: "fifo", Body: "{}"}}},
		`CREATE TABLE events (id uuid PRIMARY KEY, ordering_key int, day date NOT NULL, seq int NOT NULL, published_at timestamptz)`,
		`INSERT INTO events VALUES ('00000000-0000-0000-0000-00000000000a', 7, '2026-02-01', 2), ('00000000-0000-0000-0000-00000000000b', 7, '2026-02-01', 1),
			('00000000-0000-0000-0000-00000000000c', 7, '2026-01-01', 3), ('00000000-0000-0000-0000-00000000000d', 8, '2026-01-01', 1)`)
	for row, first := range map[string]string{"a": "c", "b": "c"} {
		e := f.explain("00000000-0000-0000-0000-00000000000" + row)
		e.says(t, StateBehind)
		require.Equal(t, "00000000-0000-0000-0000-00000000000"+first, e.HeldBy.ID)
	}
	f.explain("00000000-0000-0000-0000-00000000000c").says(t, StateNoLeader)
	f.explain("00000000-0000-0000-0000-00000000000d").says(t, StateNoLeader)
}

// transaction leaves a statement's transaction open on a session of its own.
func (f *fixture) transaction(sql string, args ...any) pgx.Tx {
	f.t.Helper()
	conn := f.db.Connect(f.t)
	_, err := conn.Exec(f.t.Context(), `SET application_name = 'psql of Ann'`)
	require.NoError(f.t, err)
	tx, err := conn.Begin(f.t.Context())
	require.NoError(f.t, err)
	_, err = tx.Exec(f.t.Context(), sql, args...)
	require.NoError(f.t, err)
	return tx
}

func TestExplainNamesWhoHasTheRowLocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	id := f.insert("q", "", "NULL")
	f.explain(id).says(t, StateFree)
	for _, sql := range []string{
		`SELECT FROM pgrelay.outbox_events WHERE id::text = $1 FOR UPDATE`,
		`SELECT FROM pgrelay.outbox_events WHERE id::text = $1 FOR SHARE`,
		`UPDATE pgrelay.outbox_events SET headers = '{}' WHERE id::text = $1`,
		`DELETE FROM pgrelay.outbox_events WHERE id::text = $1`,
	} {
		tx := f.transaction(sql, id)
		pid := tx.Conn().PgConn().PID()
		f.explain(id).says(t, StateLocked, fmt.Sprintf("backend %d (psql of Ann), idle in transaction, begun at ", pid), fmt.Sprintf("pg_terminate_backend(%d)", pid))
		require.NoError(t, tx.Rollback(t.Context()))
		f.explain(id).says(t, StateFree)
	}
}

func TestExplainNamesWhoHasTheTableLocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	id := f.insert("q", "", "NULL")
	tx := f.transaction(`ALTER TABLE pgrelay.outbox_events ADD extra int`)
	f.explain(id).says(t, StateTableLocked, fmt.Sprintf("backend %d (psql of Ann), idle in transaction", tx.Conn().PgConn().PID()))
	require.NoError(t, tx.Rollback(t.Context()))
	f.explain(id).says(t, StateNoLeader)
}

func TestExplainNamesAPreparedTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{"max_prepared_transactions": "2"}}).NewMigrated(t)
	f := &fixture{t: t, db: db, conn: db.Connect(t), pubs: map[string]*recorder{}, looks: &looks0{}}
	f.build(toQueue)
	id := f.insert("q", "", "NULL")
	for state, sql := range map[RowState]string{
		StateLocked:      `UPDATE pgrelay.outbox_events SET headers = '{}'`,
		StateTableLocked: `LOCK pgrelay.outbox_events`,
	} {
		tx := f.transaction(sql)
		_, err := tx.Exec(t.Context(), `PREPARE TRANSACTION 'half done'`)
		require.NoError(t, err)
		f.explain(id).says(t, state, "the prepared transaction 'half done'", "ROLLBACK PREPARED")
		f.exec(`ROLLBACK PREPARED 'half done'`)
	}
}

func TestExplainNeedsOnlyToReadAndSaysThatRowSecurityMayHideTheRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	visible, hidden := f.insert("q", "", "NULL"), f.insert("q", "", "NULL")
	reader := "reader_of_" + f.db.Name
	f.exec(fmt.Sprintf(`CREATE ROLE %[1]s; GRANT USAGE ON SCHEMA pgrelay TO %[1]s; GRANT SELECT ON ALL TABLES IN SCHEMA pgrelay TO %[1]s;
		CREATE POLICY one ON pgrelay.outbox_events USING (id = %[2]s); ALTER TABLE pgrelay.outbox_events ENABLE ROW LEVEL SECURITY;
		SET ROLE %[1]s`, reader, visible))
	f.explain(visible).says(t, StateNoLeader)
	f.explain(hidden).says(t, StateNoRow, "row security is in force for this role")
	require.Equal(t, visible, f.render(visible).ID)
}

func TestExplainTakesAForeignKeysCheckForNoLock(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue, `CREATE TABLE notes (event bigint REFERENCES pgrelay.outbox_events)`)
	f.start()
	id := f.insert("q", "", "NULL")
	tx := f.transaction(`INSERT INTO notes VALUES ($1::text::bigint)`, id)
	f.explain(id).says(t, StateFree)
	f.offer(id)
	f.awaitState(id, StatePublished)
	require.NoError(t, tx.Rollback(t.Context()))
}

func TestExplainOfAPausedDestination(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.pubs["fifo"].fault = func([]*Message) *Fault { return &Fault{Reason: "access_denied", Detail: "allow sqs:SendMessage"} }
	f.start()
	id := f.insert("f", "k", "NULL")
	f.offer(id)
	f.awaitState(id, StatePaused).says(t, StatePaused, "Destination fifo is paused for ", "access_denied: allow sqs:SendMessage", "tried again in ")
	f.explain(f.insert("q", "", "NULL")).says(t, StateFree, "destination queue")
}

func TestExplainOfARowThatIsAboutToGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	id := f.insert("q", "", "NULL")
	f.explain(id).says(t, StateFree, "instance "+f.relay.Instance().String()+" leads: it goes within 1s", "destination queue takes messages")
	for name, running := range map[string]*State{"nobody answers": nil, "another relay answers": {Instance: "other"}} {
		e, err := f.relay.Tables()[0].Explain(t.Context(), f.conn, id, Surroundings{Running: running})
		require.NoError(t, err, name)
		e.says(t, StateFree, `pgrelay_destination_paused{destination="queue"}`)
	}
	e, err := f.relay.Tables()[0].Explain(t.Context(), f.conn, id, Surroundings{Running: &State{Instance: f.relay.Instance().String()}})
	require.NoError(t, err)
	e.says(t, StateFree, "runs with another configuration")
}

func TestExplainOfATableThatRefusesTheClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'frozen for the audit' USING ERRCODE = '42501'; END$$`,
		`CREATE TRIGGER refuse BEFORE INSERT ON pgrelay.claims EXECUTE FUNCTION refuse()`)
	f.start()
	id := f.insert("q", "", "NULL")
	f.offer(id)
	f.awaitState(id, StateRefused).says(t, StateRefused, "frozen for the audit")
}

func TestExplainOfASuspectAndOfAStaleFailure(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	id := f.insert("q", "", "NULL")
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, crashes, next_attempt_at) VALUES ('pgrelay.outbox_events', $1, 2, now())`, id)
	f.explain(id).says(t, StateSuspect, "in 2 processes that died")
	f.exec(`UPDATE pgrelay.failures SET next_attempt_at = NULL, dead_at = now() - interval '2 days'`)
	f.explain(id).says(t, StateFree, "pgrelay.failures calls it dead at ", "2 days ago", "the mark says pending and wins")
	f.offer(id)
	f.settled(0)
	f.explain(id).says(t, StatePublished)
}
