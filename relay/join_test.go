package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// A table as others have them: nothing but a key, a reference and the mark. What is to be sent, and when, stands beside it.
var backfillTables = []string{
	`CREATE TABLE jobs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text UNIQUE, kind text, status text, link_id int, limited int, started timestamptz)`,
	`CREATE TABLE backfill (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), job_id uuid UNIQUE, created_at timestamptz DEFAULT now(), published_at timestamptz)`,
}

var backfillOutbox = config.Outbox{
	Table: "backfill", OrderBy: []string{"created_at", "id"},
	Join:   "JOIN jobs failures ON failures.id = o.job_id -- the name of a table of ours",
	Select: "failures.link_id, (failures.limited IS NULL) AS first, failures.kind AS what -- @name",
	Ready:  "failures.status = 'go' AND failures.started IS NOT NULL -- both",
	Kind:   config.RowKind{Column: "what"},
	Routes: []config.Route{
		{Kind: "google", To: "queue", Body: `{"Google":{"link":{{json .link_id}},"job":{{json .job_id}},"first":{{json .first}}}}`},
		{Kind: "plain", To: "queue", Body: `{{.link_id}}`},
	},
}

// backfill adds a row with its job, and returns its key.
func (f *fixture) backfill(name, kind, status, started string) string {
	f.t.Helper()
	return f.one(`WITH job AS (INSERT INTO jobs (name, kind, status, link_id, started) VALUES ($1, $2, $3, length($1), `+started+`) RETURNING id)
		INSERT INTO backfill (job_id) SELECT id FROM job RETURNING id::text`, name, kind, status)
}

func (f *fixture) count() Counts {
	f.t.Helper()
	c, err := f.relay.Tables()[0].Count(f.t.Context(), f.conn)
	require.NoError(f.t, err)
	return c
}

func TestJoinedRowGoesWhenItIsReadyWithWhatStandsBesideIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, backfillOutbox, backfillTables...)
	table := f.relay.Tables()[0]
	now, later, never := f.backfill("now", "google", "go", "now()"), f.backfill("later", "plain", "wait", "NULL"), f.one(`INSERT INTO backfill DEFAULT VALUES RETURNING id::text`)
	require.Equal(t, []string{now}, first(f, table.FirstLook(), openRooms))
	require.Equal(t, Counts{Table: "public.backfill", Pending: 1, NotReady: 2, Unjoined: 1}, withoutAge(f.count()))
	require.Equal(t, "5", f.render(later).Body)
	require.Equal(t, "join_empty", f.render(never).Rejection.Reason)

	f.start()
	f.offer(now, later, never)
	pub := f.pubs["queue"]
	pub.wait(t, 1)
	job := f.one(`SELECT id::text FROM jobs WHERE name = 'now'`)
	require.Equal(t, []string{`{"Google":{"link":3,"job":"` + job + `","first":true}}`}, pub.bodies())
	require.Equal(t, "google", pub.messages()[0].Kind)

	f.waitFor(`SELECT count(*) FROM backfill WHERE published_at IS NULL`, 2)
	f.explain(later).says(t, StateNotReady, "not true of it: failures.status = 'go'; nor is this: failures.started IS NOT NULL -- both.")
	f.exec(`UPDATE jobs SET status = 'go' WHERE name = 'later'`)
	f.explain(later).says(t, StateNotReady, "not true of it: failures.started IS NOT NULL -- both.")
	f.explain(never).says(t, StateUnjoined, "JOIN jobs failures ON failures.id = o.job_id")
	require.Empty(t, first(f, table.FirstLook(), openRooms))

	f.exec(`UPDATE jobs SET started = now() WHERE name = 'later'`)
	require.Equal(t, []string{later}, first(f, table.FirstLook(), openRooms))
	f.offer(later)
	pub.wait(t, 2)
	require.Equal(t, "5", pub.bodies()[1])
	f.waitFor(`SELECT count(*) FROM backfill WHERE published_at IS NULL`, 1)

	change, err := table.Republish(t.Context(), f.conn, Selection{Where: []Equal{{"job_id", job}}}, false)
	require.NoError(t, err)
	require.Equal(t, 1, change.Rows)
	require.Equal(t, "google", f.one(`SELECT kind FROM pgrelay.failures WHERE row_id = $1`, now))
	f.exec(`UPDATE jobs SET status = 'wait' WHERE name = 'now'`)
	require.Empty(t, due(f, table.RetryLook()), "a row that has become unready since waits")
	f.exec(`UPDATE jobs SET status = 'go' WHERE name = 'now'`)
	f.offer(due(f, table.RetryLook())...)
	pub.wait(t, 3)
}

// openRooms are those of destinations that take rows.
var openRooms = []int32{100, 100}

func withoutAge(c Counts) Counts {
	c.Oldest, c.OldestSeconds = 0, 0
	return c
}

// waitFor waits until a count is what it should be.
func (f *fixture) waitFor(sql string, n int) {
	f.t.Helper()
	pgtest.Eventually(f.t, longEnough, func() error {
		var got int
		if err := f.conn.QueryRow(context.Background(), sql).Scan(&got); err != nil {
			return err
		}
		if got != n {
			return fmt.Errorf("%s: %d, not %d", sql, got, n)
		}
		return nil
	}, "rows are counted")
}

func TestClaimLocksTheOutboxRowOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, backfillOutbox, backfillTables...)
	row := f.backfill("held", "plain", "go", "now()")
	f.transaction(`SELECT FROM jobs FOR UPDATE`)
	f.start()
	f.offer(row)
	f.pubs["queue"].wait(t, 1)
	locked := f.backfill("locked", "plain", "go", "now()")
	tx := f.transaction(`SELECT FROM backfill WHERE id::text = $1 FOR UPDATE`, locked)
	f.offer(locked)
	free := f.backfill("free", "plain", "go", "now()")
	f.offer(free)
	f.pubs["queue"].wait(t, 2)
	require.Equal(t, free, f.pubs["queue"].messages()[1].RowID)
	require.NoError(t, tx.Rollback(t.Context()))
	f.pubs["queue"].wait(t, 3)
}

func TestRowForWhichTheJoinFindsSeveralIsDeadAndSentOnceWhenMended(t *testing.T) {
	t.Parallel()
	outbox := backfillOutbox
	outbox.Join, outbox.OrderBy = "LEFT JOIN jobs failures ON failures.id = o.job_id OR failures.name = 'twin'", nil
	f := newFixture(t, outbox, backfillTables...)
	row := f.backfill("row", "plain", "go", "now()")
	f.exec(`INSERT INTO jobs (name, kind, status, started) VALUES ('twin', 'plain', 'go', now())`)
	require.Equal(t, "join_ambiguous", f.render(row).Rejection.Reason)
	f.start()
	f.explain(row).says(t, StateAmbiguous, "makes it dead")
	f.offer(row)
	f.awaitState(row, StateDead).says(t, StateDead, "join_ambiguous")
	f.exec(`UPDATE jobs SET status = 'wait' WHERE name = 'twin'`)
	_, err := f.relay.Tables()[0].RetryDead(t.Context(), f.conn, DeadSelection{IDs: []string{row}})
	require.NoError(t, err)
	f.offer(due(f, f.relay.Tables()[0].RetryLook())...)
	f.awaitState(row, StatePublished)
	require.Len(t, f.pubs["queue"].messages(), 1)
}

func TestRowThatIsNotReadyHoldsNobodyAndThoseThatAreKeepTheirOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Outbox{
		Table: "steps", Ready: "o.open", OrderBy: []string{"day", "id"}, Kind: config.RowKind{Constant: "step"},
		Routes: []config.Route{{Kind: "step", To: "fifo", Body: "{{.id}}"}},
	}, `CREATE TABLE steps (id uuid PRIMARY KEY, ordering_key text DEFAULT 'k', open bool, day date NOT NULL, published_at timestamptz)`)
	id := func(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }
	for n, day := range []string{"2026-03-01", "2026-02-01", "2026-01-01", "2025-01-01"} {
		f.exec(`INSERT INTO steps (id, open, day) VALUES ($1, $2, $3::text::date)`, id(n), n != 3, day)
	}
	looked := first(f, f.relay.Tables()[0].FirstLook(), openRooms)
	require.Equal(t, []string{id(2), id(1), id(0)}, looked, "looks follow order_by")
	f.start()
	f.explain(id(0)).says(t, StateBehind, id(2))
	f.offer(id(0), id(1))
	f.offer(id(2), id(3))
	pub := f.pubs["fifo"]
	pub.wait(t, 3)
	require.Equal(t, []string{id(2), id(1), id(0)}, pub.bodies())
	require.Equal(t, "step", pub.messages()[0].Kind)
	f.explain(id(3)).says(t, StateNotReady, "o.open")
	f.exec(`UPDATE steps SET open = true WHERE NOT open`) // the others may be in flight yet
	f.exec(`INSERT INTO steps (id, open, day) VALUES ($1, true, '2026-04-01')`, id(4))
	f.offer(id(4)) // alone: the row that became ready goes first all the same
	f.offer(id(3))
	pub.wait(t, 5)
	require.Equal(t, []string{id(3), id(4)}, pub.bodies()[3:])
}

func TestLookGoesOnBehindTheOrderOfRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Outbox{Table: "steps", OrderBy: []string{"day", "id"}, Routes: withBody("queue", "")},
		`CREATE TABLE steps (id bigint PRIMARY KEY, body text, day date NOT NULL, published_at timestamptz)`,
		`INSERT INTO steps SELECT n, '', '2026-01-01'::date - n / 7 FROM generate_series(1, 1200) n`)
	table := f.relay.Tables()[0]
	require.False(t, table.KeyGivesOrder())
	want := f.ids(`SELECT id::text FROM steps s ORDER BY day, s.id`)
	got := first(f, table.FirstLook(), openRooms)
	require.Equal(t, want[:LookSize], got)
	place := f.ids(`SELECT unnest(at) FROM (`+table.FirstLook()+`) AS look(id, xmin, xmax, at) WHERE id = $2`, openRooms, got[len(got)-1])
	require.Equal(t, want[LookSize:2*LookSize], first(f, table.NextLook(), openRooms, place))
}

func TestJoinIsRefusedWithTheKeyAtFault(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	conn := db.Connect(t)
	for _, sql := range append(backfillTables, `CREATE TABLE ordered (id uuid PRIMARY KEY, event_id uuid UNIQUE, ordering_key text, at timestamptz, published_at timestamptz)`) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for name, c := range map[string]struct {
		change func(o *config.Outbox)
		want   string
	}{
		"join":   {func(o *config.Outbox) { o.Join = "JOIN job ON true" }, `join: PostgreSQL refuses it: relation "job" does not exist; correct the SQL; the outbox table is o in it`},
		"select": {func(o *config.Outbox) { o.Select = "failures.linkid" }, `select: PostgreSQL refuses it: column failures.linkid does not exist; PostgreSQL says: Perhaps you meant to reference the column "failures.link_id".`},
		"ready":  {func(o *config.Outbox) { o.Ready = "failures.kind" }, "ready: PostgreSQL refuses it: argument of AND must be type boolean, not type text"},
		"nameless": {func(o *config.Outbox) { o.Select = "failures.link_id, 1 + 1" },
			"select: its column 2 has no name; give it one with AS"},
		"taken":       {func(o *config.Outbox) { o.Select = "failures.id" }, `select: there are two columns "id"`},
		"twice":       {func(o *config.Outbox) { o.Select = "failures.kind AS a, 1 AS a" }, `select: there are two columns "a"`},
		"no kind":     {func(o *config.Outbox) { o.Kind.Column = "kind" }, `kind: there is no column "kind"; the columns of the row and of select are id, job_id, created_at, published_at, link_id, first, what`},
		"no template": {func(o *config.Outbox) { o.Routes = withBody("queue", "") }, `unknown column "body"`},
		"order": {func(o *config.Outbox) {
			*o = config.Outbox{Table: "ordered", OrderBy: []string{"at", "id"}, Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}}}
		}, `order_by: "at" may be NULL, and a row without it has no place in the order of its key; run: ALTER TABLE public.ordered ALTER COLUMN "at" SET NOT NULL`},
	} {
		o := backfillOutbox
		c.change(&o)
		_, err := OpenTable(t.Context(), conn, o, []Sink{{Name: "queue", Ordered: true, FIFO: true}})
		var refused *TableError
		require.ErrorAs(t, err, &refused, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestMalformedRowIsStampedWithItsColumnsWhereTheOutboxSaysSo(t *testing.T) {
	t.Parallel()
	outbox := config.Outbox{
		Table: "odd", Kind: config.RowKind{Column: "kind"}, Routes: []config.Route{{Kind: "good", To: "queue", Body: "{{.id}}"}},
		OnMalformed: config.MalformedStamp, Set: `k = COALESCE(k, 'was ' || kind), reason = 'x', "pending@" = id -- all of them names of the stamp's own`,
	}
	f := newFixture(t, outbox, `CREATE TABLE odd (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), ordering_key text DEFAULT 'k', kind text, k text, reason text, "pending@" uuid, published_at timestamptz)`)
	bad, good := f.one(`INSERT INTO odd (kind) VALUES ('strange') RETURNING id::text`), f.one(`INSERT INTO odd (kind) VALUES ('good') RETURNING id::text`)
	f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) VALUES ('public.odd', $1, 1, now())`, bad)
	f.explain(bad).says(t, StateNoRoute, "stamps it without sending it", "pgrelay republish --table public.odd")
	f.start()
	f.offer(bad, good)
	f.pubs["queue"].wait(t, 1)
	f.awaitState(good, StatePublished)
	f.awaitState(bad, StatePublished).says(t, StatePublished, "on_malformed is stamp")
	require.Equal(t, "was strange x "+bad, f.one(`SELECT concat_ws(' ', k, reason, "pending@") FROM odd WHERE id::text = $1`, bad))
	require.Equal(t, "1", f.one(`SELECT count(*)::text FROM odd WHERE k IS NULL`), "only the malformed row is set")
	f.waitFor(`SELECT count(*) FROM pgrelay.failures`, 0)
	require.Len(t, f.pubs["queue"].messages(), 1)

	f.exec(`INSERT INTO odd (kind) SELECT 'unknown' FROM generate_series(1, 150)`)
	f.offer(f.ids(`SELECT id::text FROM odd WHERE published_at IS NULL`)...)
	f.waitFor(`SELECT count(*) FROM odd WHERE published_at IS NULL`, 0) // however many: the route that isn't there is never paused

	for set, want := range map[string]string{
		"nothing = 1":          `set: PostgreSQL refuses it: column "nothing" of relation "odd" does not exist`,
		"published_at = now()": "set: PostgreSQL refuses it: multiple assignments",
		"k = kinds":            `set: PostgreSQL refuses it: column "kinds" does not exist`,
	} {
		outbox.Set = set
		_, err := OpenTable(t.Context(), f.conn, outbox, []Sink{{Name: "queue"}, {Name: "fifo"}})
		require.ErrorContains(t, err, want)
	}
}

func TestLockedTableIsNothingAgainstTheSQLThatNamesIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue, append(backfillTables, `CREATE TABLE other (reason text)`)...)
	f.exec(`SET lock_timeout = '50ms'`)
	assigned := config.Outbox{
		Table: "backfill", Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}},
		OnMalformed: config.MalformedStamp, Set: "created_at = (SELECT now() FROM other)",
	}
	for locked, outbox := range map[string]config.Outbox{"jobs": backfillOutbox, "other": assigned} {
		tx := f.transaction(`LOCK ` + locked)
		_, err := OpenTable(t.Context(), f.conn, outbox, []Sink{{Name: "queue"}})
		var refused *TableError
		require.False(t, errors.As(err, &refused), "%v", err)
		require.True(t, Passing(err), "%v", err)
		require.NoError(t, tx.Rollback(t.Context()))
		_, err = OpenTable(t.Context(), f.conn, outbox, []Sink{{Name: "queue"}})
		require.NoError(t, err)
	}
}
