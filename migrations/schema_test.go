package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// row is a row of outbox_event_status without the columns of outbox_events.
type row struct {
	Status    string
	Attempts  int
	Waits     bool
	LastError string
}

func TestStatusViewTellsTheStateOfEachRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mark     string // SET of the outbox row
		failures string // columns and values of its failures row, if any
		claimed  bool
		want     row
	}{
		"new":               {want: row{Status: "PENDING"}},
		"deferred":          {mark: "available_at = now() + interval '1 hour'", want: row{Status: "DEFERRED"}},
		"for ever":          {mark: "available_at = 'infinity'", want: row{Status: "DEFERRED"}},
		"deferred, due":     {mark: "available_at = now() - interval '1 hour'", want: row{Status: "PENDING"}},
		"claimed":           {claimed: true, want: row{Status: "PROCESSING"}},
		"published":         {mark: "published_at = now()", want: row{Status: "PUBLISHED"}},
		"published, claim":  {mark: "published_at = now()", claimed: true, want: row{Status: "PUBLISHED"}},
		"refused":           {failures: waits + "attempts=2, reason='throttled', detail='Slow down.'", want: row{"RETRYING", 2, true, "throttled: Slow down."}},
		"refused, on again": {failures: waits + "attempts=2, reason='throttled'", claimed: true, want: row{"PROCESSING", 2, true, "throttled"}},
		"no answer":         {failures: waits + "unknowns=1, reason='timeout'", want: row{"RETRYING", 0, true, "timeout"}},
		"back from a crash": {failures: waits + "crashes=1", want: row{"PENDING", 0, true, ""}},
		"republished":       {failures: waits + "generation=7", want: row{"PENDING", 0, true, ""}},
		"dead":              {mark: "dead_at = now()", failures: died + "attempts=10, reason='refused'", want: row{"DEAD", 10, false, "refused"}},
		"dead by hand":      {mark: "dead_at = now()", want: row{Status: "DEAD"}},
		"uncertain":         {mark: "dead_at = now()", failures: died + "uncertain=true, reason='timeout'", want: row{"UNCERTAIN", 0, false, "timeout"}},
		"dead, re-armed":    {failures: died + "attempts=10, reason='refused'", want: row{Status: "PENDING"}},
		"stale retry":       {mark: "published_at = now()", failures: waits + "attempts=1, reason='x'", want: row{Status: "PUBLISHED"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Another table's claims and failures of the same id change nothing.
			db := pgtest.Migrated(t)
			db.Exec(t, `INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('A', '{}'), ('B', '{}');
				INSERT INTO pgrelay.claims (outbox, instance, ids) VALUES ('public.other', gen_random_uuid(), '{1,2}');
				INSERT INTO pgrelay.failures (outbox, row_id, dead_at, attempts) VALUES ('public.other', '1', now(), 9), ('public.other', '2', now(), 9)`)
			if c.mark != "" {
				db.Exec(t, "UPDATE pgrelay.outbox_events SET "+c.mark+" WHERE id = 1")
			}
			if c.failures != "" {
				db.Exec(t, insertFailure(c.failures))
			}
			if c.claimed {
				db.Exec(t, "INSERT INTO pgrelay.claims (outbox, instance, ids) VALUES ('pgrelay.outbox_events', gen_random_uuid(), '{7,1}')")
			}
			require.Equal(t, []row{c.want, {Status: "PENDING"}}, status(t, db))
		})
	}
}

func TestDeadLettersListAllOutboxesAndLeaveOutStaleAndUncertain(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	db.Exec(t, `INSERT INTO pgrelay.outbox_events (event_type, payload, dead_at) OVERRIDING SYSTEM VALUE
			VALUES ('dead', '{}', now()), ('re-armed', '{}', NULL), ('uncertain', '{}', now());
		INSERT INTO pgrelay.failures (outbox, row_id, dead_at, next_attempt_at, uncertain) VALUES
			('pgrelay.outbox_events', '1', now(), NULL, false),
			('pgrelay.outbox_events', '2', now(), NULL, false),
			('pgrelay.outbox_events', '3', now(), NULL, true),
			('public.other', '6ba7b810-9dad-11d1-80b4-00c04fd430c8', now(), NULL, false),
			('public.other', '2', NULL, now(), false)`)
	rows, err := db.Connect(t).Query(t.Context(), "SELECT outbox || ' ' || row_id FROM pgrelay.dead_letters ORDER BY outbox")
	require.NoError(t, err)
	letters, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"pgrelay.outbox_events 1", "public.other 6ba7b810-9dad-11d1-80b4-00c04fd430c8"}, letters)
}

func TestFailureEitherWaitsOrIsDead(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	conn := db.Connect(t)
	for _, values := range []string{"NULL, NULL, false", "now(), now(), false", "now(), NULL, true"} {
		_, err := conn.Exec(t.Context(), `INSERT INTO pgrelay.failures (outbox, row_id, next_attempt_at, dead_at, uncertain)
			VALUES ('t', '1', `+values+`)`)
		require.ErrorContains(t, err, "failures_", values)
	}
}

// A thousand claims of 500 ids searched for each of 20,000 rows would take minutes; each
// index serves the query that it is there for.
func TestPlansDoNotGrowWithTheTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	db.Exec(t, `INSERT INTO pgrelay.outbox_events (event_type, payload, ordering_key) SELECT 'A', '{}', i % 100 FROM generate_series(1, 20000) i;
		INSERT INTO pgrelay.claims (outbox, instance, ids) SELECT 'pgrelay.outbox_events', gen_random_uuid(),
			(SELECT array_agg((c * 500 + i)::text) FROM generate_series(1, 500) i) FROM generate_series(0, 999) c`)
	conn := db.Connect(t)
	_, err := conn.Exec(t.Context(), "SET statement_timeout = '20s'")
	require.NoError(t, err)
	var processing int
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT count(*) FROM pgrelay.outbox_event_status WHERE status = 'PROCESSING'").Scan(&processing))
	require.Equal(t, 20000, processing)

	_, err = conn.Exec(t.Context(), "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
	require.NoError(t, err)
	const pending = " published_at IS NULL AND dead_at IS NULL AND available_at IS "
	for index, query := range map[string]string{
		"outbox_events_pending":         "SELECT id FROM pgrelay.outbox_events WHERE id > 5 AND" + pending + "NULL ORDER BY id LIMIT 10",
		"outbox_events_deferred":        "SELECT id FROM pgrelay.outbox_events WHERE available_at <= now() AND" + pending + "NOT NULL ORDER BY available_at, id LIMIT 10",
		"outbox_events_key_pending":     "SELECT id FROM pgrelay.outbox_events WHERE ordering_key = '7' AND id < 900 AND" + pending + "NULL ORDER BY id LIMIT 1",
		"outbox_events_key_deferred":    "SELECT id FROM pgrelay.outbox_events WHERE ordering_key = '7' AND available_at > '2000-01-01' AND available_at <= now() AND" + pending + "NOT NULL ORDER BY available_at, id",
		"outbox_events_key_deferred_id": "SELECT id FROM pgrelay.outbox_events WHERE ordering_key = '7' AND id > 5 AND id < 900 AND available_at <= now() AND" + pending + "NOT NULL ORDER BY id LIMIT 1",
		"failures_holding":              "SELECT row_id FROM pgrelay.failures WHERE holds_key = '7' AND dead_at IS NOT NULL",
		"failures_waiting":              "SELECT row_id FROM pgrelay.failures WHERE outbox = 't' AND dead_at IS NULL AND next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 10",
		"failures_dead":                 "SELECT count(*) FROM pgrelay.failures WHERE outbox = 't' AND dead_at IS NOT NULL",
	} {
		rows, err := conn.Query(t.Context(), "EXPLAIN "+query)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Contains(t, strings.Join(plan, "\n")+" ", index+" ", query)
	}
}

// Prefixes of a failures row of outbox row 1.
const (
	waits = "next_attempt_at=now() + interval '1 minute', "
	died  = "dead_at=now(), "
)

// insertFailure turns assignments into an INSERT for row 1.
func insertFailure(assignments string) string {
	columns, values := []string{"outbox", "row_id"}, []string{"'pgrelay.outbox_events'", "'1'"}
	for _, assignment := range strings.Split(assignments, ", ") {
		column, value, _ := strings.Cut(assignment, "=")
		columns, values = append(columns, column), append(values, value)
	}
	return "INSERT INTO pgrelay.failures (" + strings.Join(columns, ",") + ") VALUES (" + strings.Join(values, ",") + ")"
}

func status(t *testing.T, db *pgtest.Database) []row {
	t.Helper()
	rows, err := db.Connect(t).Query(t.Context(),
		"SELECT status, attempts, next_attempt_at IS NOT NULL AS waits, last_error FROM pgrelay.outbox_event_status ORDER BY id")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	require.NoError(t, err)
	return all
}
