package check

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/sqstest"
)

func TestAHealthySetUpHasOnlyWarnings(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	report := p.examine()
	require.Empty(t, failing(report, Failure))
	require.Empty(t, failing(report, Skipped))
	warnings := failing(report, Warning)
	require.Len(t, warnings, 1)
	require.Equal(t, "slot limit", warnings[0].Name)
	require.Contains(t, warnings[0].Fix, "max_slot_wal_keep_size")
	require.False(t, inspect(p).Exists, "the check has made a slot")
}

// broken are set-ups that a statement breaks and the advice mends.
var broken = map[string]struct{ harm, name, text, fix string }{
	"no REPLICATION": {`ALTER ROLE $role NOREPLICATION`,
		"replication", "may not replicate", "run: ALTER ROLE $role REPLICATION"},
	"missing column": {`ALTER TABLE bookings RENAME published_at TO done_at`,
		"outbox public.bookings", `there is no column "published_at"`, "its columns are id, event_id"},
	"missing index of the key": {`ALTER TABLE bookings DROP CONSTRAINT bookings_pkey`,
		"outbox public.bookings", `no index begins with the key "id"`, `run: CREATE UNIQUE INDEX CONCURRENTLY ON public.bookings ("id")`},
	"missing index of pending rows": {`DROP INDEX pending`,
		"outbox public.bookings", "no index serves looks for pending rows", `run: CREATE INDEX CONCURRENTLY ON public.bookings ("id") WHERE "published_at" IS NULL`},
	"missing index of deferred rows": {`DROP INDEX deferred`,
		"outbox public.bookings", "deferred rows that are due", `run: CREATE INDEX CONCURRENTLY ON public.bookings ("available_at", "id")`},
	"missing unique event id": {`ALTER TABLE bookings DROP CONSTRAINT bookings_event_id_key`,
		"outbox public.bookings", "deduplicates by event id", `run: CREATE UNIQUE INDEX CONCURRENTLY ON public.bookings ("event_id")`},
	"no SELECT": {`REVOKE SELECT ON bookings FROM $role`,
		"outbox public.bookings", "lacks rights on it: SELECT", "run: GRANT SELECT ON public.bookings TO $role"},
	"no UPDATE": {`REVOKE UPDATE (published_at) ON bookings FROM $role`,
		"outbox public.bookings", "lacks rights on it: UPDATE (published_at)", "run: GRANT UPDATE (published_at) ON public.bookings TO $role"},
	"no rights on a table of ours": {`REVOKE INSERT, DELETE ON pgrelay.claims FROM $role`,
		"schema pgrelay", "pgrelay.claims (INSERT, DELETE)", "run: GRANT USAGE ON SCHEMA pgrelay TO $role"},
	"no USAGE on the sequence": {`REVOKE USAGE ON SEQUENCE pgrelay.generations FROM $role`,
		"schema pgrelay", "pgrelay.generations (USAGE)", "GRANT USAGE ON ALL SEQUENCES"},
	"no USAGE on the schema": {`REVOKE USAGE ON SCHEMA pgrelay FROM $role`,
		"schema pgrelay", "no USAGE", "run: GRANT USAGE ON SCHEMA pgrelay TO $role"},
	"row security": {`ALTER TABLE bookings ENABLE ROW LEVEL SECURITY; CREATE POLICY late_ones ON bookings TO $role USING (id > 10)`,
		"outbox public.bookings", "row security hides rows", "run: CREATE POLICY pgrelay ON public.bookings TO $role USING (true)"},
	"row security on a table of ours": {`ALTER TABLE pgrelay.claims ENABLE ROW LEVEL SECURITY`,
		"schema pgrelay", "row security hides rows of pgrelay.claims", "run: CREATE POLICY"},
	"numbers in blocks": {`ALTER SEQUENCE bookings_id_seq CACHE 20`,
		"outbox public.bookings", "in blocks of 20", "run: ALTER SEQUENCE public.bookings_id_seq CACHE 1"},
	"publication that leaves a table out": {`ALTER PUBLICATION pgrelay DROP TABLE bookings`,
		"publication pgrelay", "does not carry every outbox and is not ours to alter", `run: ALTER PUBLICATION "pgrelay" ADD TABLE "public"."bookings"`},
	"no publication": {`DROP PUBLICATION pgrelay`,
		"publication pgrelay", "is not there, and this role may not make it", `run: CREATE PUBLICATION "pgrelay" FOR TABLE`},
}

func TestABrokenSetUpIsNamedOnceAndItsAdviceMendsIt(t *testing.T) {
	t.Parallel()
	for name, c := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := healthy(t, pgtest.Migrated(t))
			p.exec(c.harm)
			line := p.wellBut(c.name, c.text, c.fix)
			if name == "missing column" {
				p.configure("{table: public.bookings,", "{table: public.bookings, columns: {published_at: done_at},")
				p.exec(`GRANT UPDATE (done_at) ON bookings TO $role`)
			} else {
				p.take(line.Fix)
			}
			p.well()
		})
	}
}

func TestALedgerIsLookedAtAsWell(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.configure("{table: public.bookings,", "{table: public.bookings, ledger: public.done,")
	line := p.wellBut("outbox public.bookings", "ledger: there is no table public.done", "run: CREATE TABLE public.done (event_id text PRIMARY KEY")
	p.take(line.Fix)
	line = p.wellBut("outbox public.bookings", "lacks rights on its ledger public.done: SELECT, INSERT, DELETE", "run: GRANT SELECT, INSERT, DELETE ON public.done TO")
	p.take(line.Fix)
	p.well()
}

func TestAMissingSchemaIsNamedAndWhatNeedsItSkipped(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`DROP SCHEMA pgrelay CASCADE`)
	p.wellBut("schema pgrelay", "is not there", "run: pgrelay migrate up")
	lines := failing(p.examine(), Skipped)
	require.Len(t, lines, 1)
	require.Equal(t, "outbox pgrelay.outbox_events", lines[0].Name)
}

func TestASchemaOfAnotherAgeIsNamed(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`DELETE FROM pgrelay.migrations WHERE version_id = 3`)
	p.wellBut("schema pgrelay", "older than this program", "pgrelay migrate up")
	p.exec(`INSERT INTO pgrelay.migrations (version_id, is_applied) VALUES (3, true), (99, true)`)
	p.wellBut("schema pgrelay", "newer than this program", "upgrade pgrelay")
}

func TestATableThatIsMissingOrOutOfSightIsNamed(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`ALTER TABLE bookings RENAME TO reservations`)
	p.wellBut("outbox public.bookings", "there is no such table", "check outboxes.table")
	p.exec(`ALTER TABLE reservations RENAME TO bookings; REVOKE USAGE ON SCHEMA public FROM PUBLIC`)
	line := p.wellBut("outbox public.bookings", "permission denied for schema public", "run: GRANT USAGE ON SCHEMA")
	p.take(line.Fix)
	p.well()
}

func TestAPartitionWithoutAnIndexIsNamed(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`DROP TABLE bookings;
		CREATE TABLE bookings (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_type text, payload jsonb, published_at timestamptz)
			PARTITION BY RANGE (id);
		CREATE TABLE old PARTITION OF bookings FOR VALUES FROM (0) TO (100);
		CREATE TABLE new PARTITION OF bookings FOR VALUES FROM (100) TO (200);
		CREATE INDEX ON new (id) WHERE published_at IS NULL;
		GRANT SELECT, UPDATE ON bookings TO $role`)
	p.configure(`{kind: "a", to: fifo}, {kind: "*", to: plain}`, `{kind: "*", to: plain}`)
	p.exec(`ALTER PUBLICATION pgrelay SET (publish_via_partition_root = true); ALTER PUBLICATION pgrelay ADD TABLE bookings`)
	line := p.wellBut("outbox public.bookings", "no index on its partition public.old serves looks for pending rows", "run: CREATE INDEX ON public.bookings")
	p.take(line.Fix)
	p.well()
}

func TestTheIndexOfAnOrderFollowsIt(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`ALTER TABLE bookings ADD created_at timestamptz NOT NULL DEFAULT now()`)
	p.exec(`CREATE INDEX ON bookings (created_at, id) WHERE published_at IS NULL AND available_at IS NULL`) // looks keep the order too
	p.configure("{table: public.bookings,", "{table: public.bookings, order_by: [created_at],")
	line := p.wellBut("outbox public.bookings", "no index serves the first pending row of an ordering key",
		`run: CREATE INDEX CONCURRENTLY ON public.bookings ("ordering_key", "created_at", "id") WHERE "published_at" IS NULL`)
	p.exec(`ALTER SEQUENCE bookings_id_seq CACHE 20`) // gives no order here
	p.take(line.Fix)
	p.well()
	p.exec(`DROP INDEX key_all`)
	p.wellBut("outbox public.bookings", "no index serves deferred rows of an ordering key", `("ordering_key", "available_at", "id")`)
}

func TestColumnsThatTheRoleMayNotWriteAreNamed(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`ALTER TABLE bookings ADD COLUMN attempts int, ADD COLUMN last_error int, ADD COLUMN claimed_at timestamptz; GRANT UPDATE (claimed_at) ON bookings TO $role`)
	for _, l := range p.examine().Lines {
		if l.Name == "outbox public.bookings" {
			require.Equal(t, ok("outbox public.bookings", "has its columns and indexes, and this role its rights; not written, as this role may not: attempts"), l)
			return
		}
	}
	require.Fail(t, "no line of the outbox")
}

func TestALookAtRowsThatMayNotBeReadyIsShownAndManyAreAWarning(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`CREATE TABLE jobs (id bigint PRIMARY KEY, state text); INSERT INTO jobs SELECT n, 'new' FROM generate_series(1, 10001) n; ANALYZE jobs`)
	p.configure("{table: public.bookings,", "{table: public.bookings, join: JOIN jobs ON jobs.id = o.id, ready: jobs.state = 'open',")
	p.wellBut("outbox public.bookings", "join: permission denied for table jobs", "run GRANT SELECT ON … TO")
	p.exec(`GRANT SELECT ON jobs TO $role; REVOKE ALL ON bookings FROM $role`)
	line := p.wellBut("outbox public.bookings", "this role may not read it", `run: GRANT SELECT, UPDATE ("published_at") ON public.bookings TO`)
	p.take(line.Fix)
	p.well()
	look := func() Line {
		for _, l := range p.examine().Lines {
			if strings.Contains(l.Text, "are not ready") {
				return l
			}
		}
		return Line{}
	}
	p.exec(`INSERT INTO bookings (event_type, payload) SELECT 'a', '1' FROM generate_series(1, 10000) n; ANALYZE bookings`)
	require.Equal(t, OK, look().Level)
	require.Contains(t, look().Text, "10000 rows are not ready")
	require.Contains(t, look().Text, "jobs_pkey")
	p.exec(`INSERT INTO bookings (event_type, payload) SELECT 'a', '1' FROM generate_series(1, 2) n; CREATE INDEX of_state ON jobs (state); ANALYZE`)
	require.Equal(t, Warning, look().Level)
	require.Contains(t, look().Text, "10002 rows are not ready (the join finds nothing for 1), and each look reads them; a look goes by: Index Scan using of_state on jobs")
}

func TestASlotOfSomebodyElseIsNamed(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{})
	p := healthy(t, server.NewMigrated(t))
	for name, c := range map[string]struct{ make, text string }{
		"of another plugin": {`SELECT pg_create_logical_replication_slot('` + p.slot() + `', 'test_decoding')`, `plugin "test_decoding"`},
		"physical":          {`SELECT pg_create_physical_replication_slot('` + p.slot() + `')`, "a physical slot"},
	} {
		p.exec(c.make)
		line := p.wellBut("slot $slot", "somebody else's", "configure another replication.slot")
		require.Contains(t, line.Text, c.text, name)
		p.exec(`SELECT pg_drop_replication_slot('` + p.slot() + `')`)
	}
	server.NewDatabase(t).Exec(t, `SELECT pg_create_logical_replication_slot('`+p.slot()+`', 'pgoutput')`)
	line := p.wellBut("slot $slot", "somebody else's", "pg_drop_replication_slot")
	require.Contains(t, line.Text, `of database "test_2"`)
}

func TestABrokenDestinationIsNamed(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.configure("queue: invoices", "queue: invoicse")
	p.wellBut("destination plain", "queue missing", "queue invoicse in eu-west-1: create the queue")
	p.configure("queue: bookings.fifo, region: eu-west-1", "queue: bookings.fifo, region: eu-north-1")
	p.sqs.SetFault(func(r sqstest.Request) sqstest.Fault { // one queue has one region
		if r.Queue == "bookings.fifo" && r.Action == "GetQueueUrl" {
			return sqstest.Fault{Code: "AWS.SimpleQueueService.NonExistentQueue"}
		}
		return sqstest.Fault{}
	})
	p.wellBut("destination fifo", "queue missing", "queue bookings.fifo in eu-north-1: create the queue")
	p.configure("", "")
	for code, want := range map[string][2]string{
		"InvalidClientTokenId":  {"credentials", "check the access key"},
		"SignatureDoesNotMatch": {"credentials", "secret"},
		"AccessDenied":          {"access denied", "allow sqs:SendMessage"},
	} {
		p.sqs.SetFault(func(r sqstest.Request) sqstest.Fault {
			if r.Queue == "invoices" {
				return sqstest.Fault{Code: code}
			}
			return sqstest.Fault{}
		})
		p.wellBut("destination plain", want[0], want[1])
	}
}

func TestARoleThatIsReadOnlyByDefaultIsFine(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`ALTER ROLE $role SET default_transaction_read_only = on; ALTER ROLE $role SET statement_timeout = 1`)
	p.well()
}

func TestASettingThatEndsSessionsIsAWarning(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	if p.db.Server.Version < 14 {
		var n int
		require.NoError(t, p.db.Connect(t).QueryRow(t.Context(), `SELECT count(*) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout')`).Scan(&n))
		require.Zero(t, n, "it has no such setting")
		return
	}
	p.exec(`ALTER ROLE $role SET idle_session_timeout = '1min'`)
	warnings := failing(p.examine(), Warning)
	require.Equal(t, "settings", warnings[0].Name)
	require.Contains(t, warnings[0].Fix, "ALTER ROLE "+quote(p.role)+" SET idle_session_timeout = 0")
	p.take(warnings[0].Fix)
	p.well()
}

func TestNothingIsAskedOfReplicationThatIsOff(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.exec(`ALTER ROLE $role NOREPLICATION; DROP PUBLICATION pgrelay`)
	p.configure("http:", "replication: {enabled: false}\nhttp:")
	report := p.examine()
	require.Empty(t, failing(report, Failure))
	require.Empty(t, failing(report, Warning))
	require.Equal(t, "replication", failing(report, Skipped)[0].Name)
}

func TestAPoolerIsNamed(t *testing.T) {
	t.Parallel()
	p := healthy(t, pgtest.Migrated(t))
	p.url.Host = pgtest.Pooler(t)
	p.wellBut("connection", "a pooler answers", "connect directly to PostgreSQL")
}

func TestAServerThatDoesNotAnswerCostsSeconds(t *testing.T) {
	t.Parallel()
	silent := listen(t)
	p := healthy(t, pgtest.Migrated(t))
	p.url.Host = silent.Addr().String()
	p.wellBut("connection", "does not answer within 10s", "check host, port and firewall")
	require.NoError(t, silent.Close())
	p.wellBut("connection", "connection refused", "start PostgreSQL")
}

func TestTheSessionCannotWrite(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.New(t).URL)
	require.NoError(t, err)
	conn, err := connect(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(t.Context())) })
	_, err = conn.Exec(t.Context(), `CREATE TABLE x ()`)
	require.ErrorContains(t, err, "read-only")
}
