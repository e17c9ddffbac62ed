package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/sqstest"
)

// Secrets that no run may show.
const (
	rolePassword = "pg-s3cr3t"
	awsSecret    = "aws-s3cr3t"
)

// patient is a world whose relay works as a role that is no superuser, on a table of the user's beside our own. It owns both, so
// that it could make a publication; it is healthy until a test breaks it.
type patient struct {
	*world
	url url.URL // as the role
}

const patientSQL = `
SET password_encryption = 'scram-sha-256'; -- before 14 it is md5
CREATE ROLE $role LOGIN REPLICATION PASSWORD '` + rolePassword + `';
GRANT CREATE ON DATABASE $database TO $role;
GRANT USAGE ON SCHEMA pgrelay TO $role;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgrelay TO $role;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgrelay TO $role;
CREATE TABLE public.bookings (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
	event_type text NOT NULL DEFAULT 'q', payload jsonb NOT NULL DEFAULT '1', published_at timestamptz);
CREATE INDEX pending ON public.bookings (id) WHERE published_at IS NULL;
ALTER TABLE public.bookings OWNER TO $role;
ALTER TABLE pgrelay.outbox_events OWNER TO $role`

const bothOutboxes = "[{table: public.bookings, routes: " + routes + "}, {table: pgrelay.outbox_events, routes: " + routes + "}]"

func newPatient(t *testing.T, db *pgtest.Database) *patient {
	t.Helper()
	p := &patient{world: newWorldOn(t, db, sections{"outboxes": bothOutboxes})}
	t.Cleanup(func() {
		db.Exec(t, p.fill(`REASSIGN OWNED BY $role TO postgres; DROP OWNED BY $role; DROP ROLE $role`))
	})
	p.harm(patientSQL)
	address, err := url.Parse(db.URL)
	require.NoError(t, err)
	p.url = *address
	p.url.User = url.UserPassword(p.fill("$role"), rolePassword)
	return p
}

func (p *patient) fill(sql string) string {
	return strings.NewReplacer("$role", "role_of_"+p.db.Name, "$database", p.db.Name).Replace(sql)
}

// harm runs SQL as the superuser.
func (p *patient) harm(sql string) {
	p.t.Helper()
	p.db.Exec(p.t, p.fill(sql))
}

// start runs the relay, whose output must show no secret whatever it says.
func (p *patient) start() *process {
	p.t.Helper()
	run := p.launch([]string{"DATABASE_URL=" + p.url.String(), "AWS_SECRET_ACCESS_KEY=" + awsSecret}, "run")
	p.t.Cleanup(func() { // before the process is finished
		if run.running() {
			require.Zero(p.t, run.terminate())
		}
		for _, secret := range []string{rolePassword, awsSecret, "wr0ng-s3cr3t", "postgres://"} {
			require.NotContains(p.t, run.stdout.String()+run.stderr.String(), secret)
		}
	})
	return run
}

// names waits for one line of the log that holds all of the parts.
func (p *patient) names(run *process, parts ...string) {
	p.t.Helper()
	pgtest.Eventually(p.t, patience, func() error {
		ended := !run.running()
		for line := range strings.Lines(run.stderr.String()) {
			var fields entry
			if json.Unmarshal([]byte(line), &fields) == nil {
				line = fmt.Sprint(fields) // without JSON's escapes
			}
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, p.fill(part)) }) {
				return nil
			}
		}
		if ended {
			p.t.Fatalf("no line has all of %q", parts)
		}
		return fmt.Errorf("no line has all of %q", parts)
	}, "the run names what is wrong")
}

// relays shows that a row of our outbox goes out all the same.
func (p *patient) relays() {
	p.t.Helper()
	before := p.sqs.Count(standardQueue)
	p.insert("q", 1)
	p.arrive(standardQueue, before+1)
}

// left counts what runs have left behind.
func (p *patient) left() string {
	p.t.Helper()
	return p.string(`SELECT format('%s slots, %s publications, %s claims, %s leaders', (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()),
		(SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pgrelay.claims), (SELECT count(*) FROM pgrelay.leader))`)
}

const nothing = "0 slots, 0 publications, 0 claims, 0 leaders"

func TestARunThatCannotWorkSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	taken, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() }) // nothing was written
	body := func(template string) sections {
		return sections{"outboxes": "[{table: public.bookings, routes: [{kind: '*', to: queue, body: '" + template + "'}]}]"}
	}
	for name, c := range map[string]struct {
		harm   string
		change sections
		code   int
		says   []string
	}{
		"missing table":  {harm: `DROP TABLE bookings`, code: 1, says: []string{"public.bookings", "there is no such table", "check outboxes.table"}},
		"missing column": {harm: `ALTER TABLE bookings RENAME published_at TO done_at`, code: 1, says: []string{`there is no column "published_at"`, "map it with columns", "done_at"}},
		"missing value of a status": {
			harm:   `CREATE TYPE short AS ENUM ('PENDING', 'PUBLISHED', 'FAILED'); ALTER TABLE bookings ADD COLUMN status short, ADD COLUMN claimed_at timestamptz`,
			change: sections{"outboxes": "[{table: public.bookings, status: {}, routes: [{kind: '*', to: queue}]}]"}, code: 1,
			says: []string{"pgrelay.yaml:4: outbox public.bookings: status.processing", "run: ALTER TYPE short ADD VALUE 'PROCESSING'"}},
		"missing index of the key": {harm: `ALTER TABLE bookings DROP CONSTRAINT bookings_pkey`, code: 1,
			says: []string{`no index begins with the key "id"`, "run: CREATE UNIQUE INDEX CONCURRENTLY ON public.bookings"}},
		"missing grant on the table's schema": {harm: `REVOKE USAGE ON SCHEMA public FROM PUBLIC`, code: 1,
			says: []string{"public.bookings", "permission denied for schema public", `run: GRANT USAGE ON SCHEMA "public" TO "$role"`}},
		"missing grant on the schema": {harm: `REVOKE USAGE ON SCHEMA pgrelay FROM $role`, code: 1,
			says: []string{"schema pgrelay", "no USAGE", `GRANT USAGE ON SCHEMA pgrelay TO "$role"`}},
		"missing grant on a table of ours": {harm: `REVOKE INSERT ON pgrelay.claims FROM $role`, code: 1,
			says: []string{"lacks rights: pgrelay.claims (INSERT)", `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgrelay TO "$role"`}},
		"row security on a table of ours": {harm: `ALTER TABLE pgrelay.claims ENABLE ROW LEVEL SECURITY`, code: 1,
			says: []string{"row security hides rows of pgrelay.claims", `run: CREATE POLICY pgrelay ON pgrelay.claims TO "$role"`}},
		"unknown name in a template": {change: body("{{.titel}}"), code: 1, says: []string{"outbox public.bookings: line 4: body", `unknown column "titel"`, "its columns are id, event_id"}},
		"taken port": {change: sections{"http": "{addr: '" + taken.Addr().String() + "'}"}, code: 1,
			says: []string{taken.Addr().String(), "address already in use", "or set another http.addr"}},
		"misspelt key":   {change: sections{"poller": "{intervall: 1s}"}, code: 2, says: []string{"pgrelay.yaml:5", "intervall", "interval"}},
		"bad template":   {change: body("{{.payload"), code: 2, says: []string{"pgrelay.yaml:4", "body"}},
		"unset variable": {change: sections{"log": "{level: '${NOBODY_SETS_IT}'}"}, code: 2, says: []string{"pgrelay.yaml:4", "NOBODY_SETS_IT"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, pgtest.Migrated(t))
			p.harm(c.harm)
			change := sections{"outboxes": bothOutboxes}
			maps.Copy(change, c.change)
			p.configure(change)
			run := p.start()
			require.Equal(t, c.code, run.wait())
			p.names(run, c.says...)
			require.Equal(t, nothing, p.left())
		})
	}
}

func TestARunNamesWhatItsTablesLackAndRelaysTheOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ harm, text, fix string }{
		"no SELECT": {`REVOKE SELECT ON bookings FROM $role`, "lacks rights on it: SELECT", `GRANT SELECT ON public.bookings TO "$role"`},
		"no UPDATE": {`REVOKE UPDATE ON bookings FROM $role`, "lacks rights on it: UPDATE (published_at)", `GRANT UPDATE (published_at) ON public.bookings TO "$role"`},
		"row security": {`ALTER TABLE bookings ENABLE ROW LEVEL SECURITY; ALTER TABLE bookings FORCE ROW LEVEL SECURITY`,
			"row security hides rows of it", `CREATE POLICY pgrelay ON public.bookings TO "$role" USING (true)`},
		"missing index": {`DROP INDEX pending`, "no index serves looks for pending rows",
			`CREATE INDEX CONCURRENTLY ON public.bookings ("id") WHERE "published_at" IS NULL`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, pgtest.Migrated(t))
			p.harm(c.harm)
			p.exec(`INSERT INTO bookings DEFAULT VALUES`)
			run := p.start()
			p.names(run, "level:error", "outbox public.bookings", c.text, "run: "+c.fix)
			p.relays()
			p.harm(c.fix)
			p.eventually("0", `SELECT count(*)::text FROM bookings WHERE published_at IS NULL`)
		})
	}
}

func TestARunWithoutAStreamSaysWhyAndThePollerRelays(t *testing.T) {
	t.Parallel()
	const said = "no replication stream: rows are found by polling"
	t.Run("no REPLICATION", func(t *testing.T) {
		t.Parallel()
		p := newPatient(t, pgtest.Migrated(t))
		p.harm(`ALTER ROLE $role NOREPLICATION`)
		p.names(p.start(), said, "the role may not replicate", "ALTER ROLE … REPLICATION")
		p.relays()
	})
	t.Run("wal_level and passwords", func(t *testing.T) {
		t.Parallel()
		server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
		p := newPatient(t, server.NewMigrated(t))
		p.refusesPasswords()
		p.names(p.start(), said, "wal_level is not logical", "set wal_level = logical")
		p.relays()
	})
	t.Run("slots", func(t *testing.T) {
		t.Parallel()
		server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{"max_replication_slots": "1"}})
		p := newPatient(t, server.NewMigrated(t))
		p.harm(`SELECT pg_create_physical_replication_slot('somebodys')`)
		run := p.start()
		p.names(run, said, "no replication slot is free", "raise max_replication_slots")
		p.relays()
		run.stop()
		p.harm(`SELECT pg_drop_replication_slot('somebodys'), pg_create_physical_replication_slot('pgrelay_$database')`)
		p.names(p.start(), said, "pgrelay_"+p.db.Name, "physical", "replication.slot")
		p.relays()
		require.Equal(t, "physical", p.string(`SELECT slot_type FROM pg_replication_slots`))
	})
}

// refusesPasswords runs what a server that wants a password refuses, and leaves it wanting one.
func (p *patient) refusesPasswords() {
	p.t.Helper()
	p.harm(`DO $$ BEGIN EXECUTE format('COPY (SELECT ''host all $role 127.0.0.1/32 scram-sha-256'' UNION ALL SELECT ''host all all 127.0.0.1/32 trust'') TO %L',
		current_setting('hba_file')); END $$; SELECT pg_reload_conf()`)
	right := p.url
	for name, c := range map[string]struct {
		change func()
		says   []string
	}{
		"wrong password": {func() { p.url.User = url.UserPassword(p.fill("$role"), "wr0ng-s3cr3t") },
			[]string{"password authentication failed", "correct the password in database.url"}},
		"wrong database": {func() { p.url.Path = "/nowhere" },
			[]string{`database "nowhere" does not exist`, "correct the database in database.url"}},
	} {
		c.change()
		run := p.start()
		require.Equal(p.t, 1, run.wait(), name)
		p.names(run, c.says...)
		require.Equal(p.t, nothing, p.left())
		p.url = right
	}
}

func TestARunBehindAPoolerSaysSoAndWaits(t *testing.T) {
	t.Parallel()
	p := newPatient(t, pgtest.Migrated(t))
	p.url.Host = pgtest.Pooler(t)
	run := p.start()
	p.names(run, "PostgreSQL is out of reach; trying again", "a pooler answers", "connect directly to PostgreSQL")
	require.Zero(t, run.terminate())
	require.Equal(t, nothing, p.left())
}

func TestARunPausesADestinationThatIsWrongAndSaysWhy(t *testing.T) {
	t.Parallel()
	otherType := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		answer := `{"QueueUrl":"http://localhost/0/events.fifo"}`
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetQueueAttributes") {
			answer = `{"Attributes":{"MaximumMessageSize":"262144"}}`
		}
		_, _ = w.Write([]byte(answer)) // the client tells
	}))
	t.Cleanup(otherType.Close)
	refuses := func(code string) func(sqstest.Request) sqstest.Fault {
		return func(r sqstest.Request) sqstest.Fault {
			if r.Queue == fifoQueue {
				return sqstest.Fault{Code: code, Message: "the secret is not " + awsSecret}
			}
			return sqstest.Fault{}
		}
	}
	for name, c := range map[string]struct {
		queue, change string
		fault         func(sqstest.Request) sqstest.Fault
		says          []string
	}{
		"wrong name":   {queue: "evnets.fifo", says: []string{"queue_missing", "queue evnets.fifo in us-east-1", "create the queue, or mend its name"}},
		"wrong region": {change: "region: eu-north-1", fault: refuses("QueueDoesNotExist"), says: []string{"queue_missing", "queue events.fifo in eu-north-1", "region"}},
		"wrong type":   {change: "endpoint: '" + otherType.URL + "'", says: []string{"wrong_type", "FIFO if and only if its name ends in .fifo"}},
		"wrong key":    {fault: refuses("InvalidClientTokenId"), says: []string{"credentials", "check the access key, its secret and the region"}},
		"wrong secret": {fault: refuses("SignatureDoesNotMatch"), says: []string{"credentials", "check the access key, its secret and the region"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, pgtest.Migrated(t))
			fifo := p.queue(cmp.Or(c.queue, fifoQueue), c.change)
			if strings.HasPrefix(c.change, "endpoint") {
				fifo = "{type: sqs, queue: " + fifoQueue + ", " + c.change + "}"
			}
			p.configure(sections{"outboxes": bothOutboxes, "destinations": fmt.Sprintf("{queue: %s, fifo: %s}", p.queue(standardQueue), fifo)})
			p.sqs.SetFault(c.fault)
			run := p.start()
			p.names(run, append(c.says, "destination starts paused", "destination:fifo")...)
			p.insert("f", 1)
			p.relays()
			p.settled(1)
			require.Equal(t, map[string]float64{"fifo": 1, "queue": 0}, run.gauges("pgrelay_destination_paused"))
		})
	}
}
