package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

func TestStatusThatTheColumnCannotHaveIsRefusedWithWhatAddsIt(t *testing.T) {
	t.Parallel()
	conn := pgtest.Migrated(t).Connect(t)
	for n, c := range []struct{ column, more, want string }{
		{"text", "", ""},
		{"varchar(10)", "", ""},
		{"char(10)", "", ""},
		{"text CHECK (status <> '')", "", ""},
		{"public.full", "", ""},
		{"public.narrow", "", `status.processing: "PROCESSING": PostgreSQL refuses it: value for domain narrow violates check constraint "narrow_check"; give one that the column, which is narrow, has`},
		{"public.short", "", `status.processing: "PROCESSING": PostgreSQL refuses it: invalid input value for enum short: "PROCESSING"; give the value that it has for this, or run: ALTER TYPE short ADD VALUE 'PROCESSING'` +
			"\n" + `outbox public.t: status.dead: "FAILED": PostgreSQL refuses it: invalid input value for enum short: "FAILED"; give the value that it has for this, or run: ALTER TYPE short ADD VALUE 'FAILED'`},
		{"varchar(9)", "", `status.processing: "PROCESSING": is cut to "PROCESSIN" by the column, which is character varying(9); give the value that it has, or run: ALTER TABLE public.t ALTER COLUMN "status" TYPE text`},
		{"char(9)", "", `status.processing: "PROCESSING": is cut to "PROCESSIN" by the column, which is character(9)`},
		{"smallint", "", `status.pending: "PENDING": PostgreSQL refuses it: invalid input syntax for type smallint: "PENDING"; give one that the column, which is smallint, has`},
		{"text CONSTRAINT known CHECK (status IN ('PENDING', 'PROCESSING', 'PUBLISHED', 'DEAD'))", "", `status.dead: "FAILED": its constraint "known" does not allow it; give the value that it allows, or run: ALTER TABLE public.t DROP CONSTRAINT "known", ADD CONSTRAINT "known" CHECK ((` +
			`(status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text, 'PUBLISHED'::text, 'DEAD'::text]))) OR "status" = 'FAILED')`},
		{"text", "alone", "status: no column claimed_at or updated_at tells since when a row has been PROCESSING, so one that a dead worker left so could not be taken back; " +
			"map one with columns: {claimed_at: …}, or run: ALTER TABLE public.t ADD COLUMN claimed_at timestamptz"},
	} {
		since := ", updated_at timestamp"
		if c.more == "alone" {
			since = ", updated_at text, claimed_on date"
		}
		exec := func(sql string) {
			_, err := conn.Exec(t.Context(), sql)
			require.NoError(t, err, sql)
		}
		if n == 0 {
			exec(`CREATE TYPE full_ AS ENUM ('PENDING', 'PROCESSING', 'PUBLISHED', 'FAILED'); ALTER TYPE full_ RENAME TO "full"; CREATE TYPE short AS ENUM ('PENDING', 'PUBLISHED');
				CREATE DOMAIN narrow AS text CHECK (VALUE <> 'PROCESSING')`)
		}
		exec("CREATE TABLE t (id uuid PRIMARY KEY, status " + strings.ReplaceAll(c.column, "public.full", `public."full"`) + since + ")")
		_, err := OpenTable(t.Context(), conn, config.Outbox{Table: "t", Status: ownStatus, Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}}}, []Sink{{Name: "queue"}})
		if c.want == "" {
			require.NoError(t, err, c.column)
		} else {
			require.ErrorContains(t, err, "outbox public.t: "+c.want, c.column)
		}
		if run, ok := strings.CutPrefix(c.want[strings.LastIndex(c.want, "; ")+1:], " run: "); ok && strings.Count(c.want, "\n") == 0 && err != nil { // the advice mends it
			exec(strings.Split(run, ", or ")[0])
		} else if i := strings.Index(c.want, "run: ALTER TABLE public.t ADD"); i >= 0 {
			exec(c.want[i+5:])
		} else {
			exec("DROP TABLE t")
			continue
		}
		_, err = OpenTable(t.Context(), conn, config.Outbox{Table: "t", Status: ownStatus, Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}}}, []Sink{{Name: "queue"}})
		require.NoError(t, err, c.column)
		exec("DROP TABLE t")
	}
}

func TestStatusMappingIsRefusedWithTheKeyAtFault(t *testing.T) {
	t.Parallel()
	conn := pgtest.Migrated(t).Connect(t)
	_, err := conn.Exec(t.Context(), `CREATE TABLE t (id uuid PRIMARY KEY, state int, updated_at timestamptz, published_at bool, note text)`)
	require.NoError(t, err)
	codes := config.Status{Column: "state", Pending: "0", Processing: "1", Published: "2", Dead: "3"}
	for want, change := range map[string]func(o *config.Outbox){
		"": func(*config.Outbox) {},
		`status.column: there is no column "status"; its columns are id, state`:                                                                             func(o *config.Outbox) { o.Status.Column = "status" },
		`status.dead: "01": is the same value to the column as that of status.processing; give each its own`:                                                func(o *config.Outbox) { o.Status.Dead = "01" },
		`columns.published_at: "published_at" is of type boolean, not a time`:                                                                               func(o *config.Outbox) { o.Columns.PublishedAt = "published_at" },
		`columns.claimed_at: "note" is of type text, not a time`:                                                                                            func(o *config.Outbox) { o.Columns.ClaimedAt = "note" },
		`columns.attempts: "note" is of type text, not an integer`:                                                                                          func(o *config.Outbox) { o.Columns.Attempts = "note" },
		`columns.last_error: "state" is of type integer, not text`:                                                                                          func(o *config.Outbox) { o.Columns.LastError = "state" },
		`columns.next_attempt_at: there is no column "x"`:                                                                                                   func(o *config.Outbox) { o.Columns.NextAttemptAt = "x" },
		`retention: no index begins with "updated_at", so each sweep would read the whole table; run: CREATE INDEX CONCURRENTLY ON public.t ("updated_at")`: func(o *config.Outbox) { o.Retention = 1 },
	} {
		o := config.Outbox{Table: "t", Status: codes, Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}}}
		change(&o)
		table, err := OpenTable(t.Context(), conn, o, []Sink{{Name: "queue"}})
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, []string{"state", "updated_at"}, table.Marks(), "a published_at that is no time is left alone")
			continue
		}
		require.ErrorContains(t, err, want)
	}
	o := config.Outbox{Table: "t", Status: codes, Retention: 1, Columns: config.Columns{ClaimedAt: "seen_at"}, Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}}}
	_, err = conn.Exec(t.Context(), `ALTER TABLE t DROP COLUMN updated_at, ADD COLUMN seen_at timestamptz`)
	require.NoError(t, err)
	_, err = OpenTable(t.Context(), conn, o, []Sink{{Name: "queue"}})
	require.ErrorContains(t, err, "retention: no column published_at or updated_at tells when a row was settled; map one with columns: {published_at: …}, or run: ALTER TABLE public.t ADD COLUMN published_at timestamptz")
}

func TestColumnThatHappensToHaveANameOfOursIsLeftAloneUnlessItFits(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	conn := db.Connect(t)
	for ddl, marks := range map[string][]string{
		`attempts text, next_attempt_at date, last_error int, claimed_at bool, updated_at timestamptz`:                             {"published_at"},
		`attempts int, next_attempt_at timestamp, last_error varchar(3), claimed_at timestamptz`:                                   {"published_at", "claimed_at", "attempts", "next_attempt_at", "last_error"},
		`n int, attempts int GENERATED ALWAYS AS (n + 1) STORED, next_attempt_at int GENERATED ALWAYS AS IDENTITY, last_error xml`: {"published_at"},
	} {
		_, err := conn.Exec(t.Context(), "DROP TABLE IF EXISTS t; CREATE TABLE t (id uuid PRIMARY KEY, published_at timestamptz, "+ddl+")")
		require.NoError(t, err)
		table, err := OpenTable(t.Context(), conn, config.Outbox{Table: "t", Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}}}, []Sink{{Name: "queue"}})
		require.NoError(t, err)
		require.Equal(t, marks, table.Marks(), ddl)
	}
}

func TestMarkThatIsNoTimeIsRefusedWithItsColumn(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	conn := db.Connect(t)
	for ddl, want := range map[string]string{
		`published_at bool`:                             `columns.published_at: "published_at" is of type boolean, not a time`,
		`published_at text`:                             `columns.published_at: "published_at" is of type text, not a time`,
		`published_at timestamptz, available_at bigint`: `columns.available_at: "available_at" is of type bigint, not a time`,
		`published_at timestamptz, dead_at bool`:        "",
	} {
		_, err := conn.Exec(t.Context(), "DROP TABLE IF EXISTS t; CREATE TABLE t (id uuid PRIMARY KEY, "+ddl+")")
		require.NoError(t, err)
		_, err = OpenTable(t.Context(), conn, config.Outbox{Table: "t", Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}}}, []Sink{{Name: "queue"}})
		if want == "" {
			require.NoError(t, err, ddl)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

func TestRuleOnWhatTheRelayDoesIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	conn := db.Connect(t)
	_, err := conn.Exec(t.Context(), `CREATE TABLE t (id uuid PRIMARY KEY, published_at timestamptz);
		CREATE RULE "keep it" AS ON DELETE TO t DO INSTEAD NOTHING; CREATE RULE note AS ON INSERT TO t DO ALSO NOTIFY x`)
	require.NoError(t, err)
	o := config.Outbox{Table: "t", Routes: []config.Route{{Kind: "*", To: "queue", Body: "x"}}}
	open := func() error {
		_, err := OpenTable(t.Context(), conn, o, []Sink{{Name: "queue"}})
		return err
	}
	require.NoError(t, open(), "the relay deletes nothing there")
	o.OnPublished = config.PublishedDelete
	require.ErrorContains(t, open(), `its rule "keep it" rewrites each DELETE, and PostgreSQL has none beside the relay's statements; make a trigger of it, then run: DROP RULE "keep it" ON public.t`)
	o.OnPublished = ""
	_, err = conn.Exec(t.Context(), `CREATE RULE log AS ON UPDATE TO t DO ALSO NOTIFY x`)
	require.NoError(t, err)
	require.ErrorContains(t, open(), `its rule "log" rewrites each UPDATE`)
}
