package chaos_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/smtptest"
	"pgrelay/internal/sqstest"
)

// patience is how long the run waits for what has to happen when all faults have ended: long, for a busy machine.
const patience = 2 * time.Minute

const (
	standardQueue = "events"
	fifoQueue     = "events.fifo"
	mailServer    = "mail"

	ownTable    = "pgrelay.outbox_events"
	bareTable   = "public.mail"     // it keeps a ledger
	joinedTable = "public.backfill" // it has a status; its content stands in chaos.tasks, which says as well when it may go; it goes at most once
)

// Of each table, which rows are pending, which are published, what makes one pending again, and the column that holds its body, if it has one.
var (
	pends     = map[string]string{ownTable: "published_at IS NULL AND dead_at IS NULL", bareTable: "sent_at IS NULL", joinedTable: "state IN ('PENDING', 'PROCESSING')"}
	published = map[string]string{ownTable: "published_at IS NOT NULL", bareTable: "sent_at IS NOT NULL", joinedTable: "state = 'PUBLISHED'"}
	rearm     = map[string]string{ownTable: "published_at = NULL", bareTable: "sent_at = NULL", joinedTable: "state = 'PENDING'"}
	payload   = map[string]string{ownTable: "payload", bareTable: "document"}
)

// callTimeout is the destinations' timeout: long, so that no busy machine makes a call run into it that no fault held up.
const callTimeout = 10 * time.Second

// mailConnections are the mail server's: no process has more mails on their way.
const mailConnections = 4

// world is what a run happens in.
type world struct {
	t         testing.TB
	plan      plan
	began     time.Time
	server    *pgtest.Server
	db        *pgtest.Database
	sqs       *sqstest.TestServer
	mail      *smtptest.Server
	addrs     map[string]string // of the servers: database, queue, mail
	file      string            // the configuration
	instances map[string]*instance
	answers   *answers
	samples   *samples

	mu      sync.Mutex
	applied []applied
}

// applied is a fault as it happened.
type applied struct {
	fault
	began, ended time.Time
	err          error // it could not be brought about
}

func newWorld(t testing.TB, p plan) *world {
	t.Helper()
	w := &world{
		t: t, plan: p, server: pgtest.StartServer(t, pgtest.Options{}), sqs: sqstest.Start(t), mail: smtptest.Start(t, smtptest.Options{}),
		file: filepath.Join(t.TempDir(), "pgrelay.yaml"), instances: map[string]*instance{}, samples: &samples{},
	}
	w.db = w.server.NewMigrated(t)
	w.db.Exec(t, schema)
	for _, q := range queues {
		w.sqs.CreateQueue(q, nil)
	}
	w.answers = newAnswers()
	w.sqs.SetFault(w.answers.answer)
	w.mail.SetFault(w.answers.receive)
	w.addrs = map[string]string{
		"database": w.server.Addr, "queue": strings.TrimPrefix(w.sqs.URL, "http://"), "mail": fmt.Sprintf("%s:%d", w.mail.Host(), w.mail.Port()),
	}
	for _, name := range processes {
		w.instances[name] = &instance{w: w, name: name, links: map[string]*proxy{}}
		for side, addr := range w.addrs {
			w.instances[name].links[side] = newProxy(t, addr)
		}
	}
	require.NoError(t, os.WriteFile(w.file, []byte(w.configuration()), 0o600))
	return w
}

func (w *world) configuration() string {
	const routes = `{kind: "f*", to: fifo}, {kind: "q*", to: queue}`
	destination := func(queue string) string {
		return fmt.Sprintf("{type: sqs, queue: %s, endpoint: '${SQS_URL}', concurrency: 8, timeout: %s, pause: {initial: 50ms, max: 1s}}", queue, callTimeout)
	}
	looks := "{interval: 200ms, sweep_interval: 2s}"
	if w.plan.slow {
		looks = "{interval: 30m, sweep_interval: 1h}"
	}
	return fmt.Sprintf(`
database: {url: '${DATABASE_URL}'}
destinations:
  queue: %s
  fifo: %s
  mail: {type: smtp, host: 127.0.0.1, port: '${MAIL_PORT}', tls: none, from: chaos@example.com, concurrency: %d, timeout: %s, pause: {initial: 50ms, max: 1s}}
outboxes:
  - table: %s
    routes:
      - {kind: f.held, to: fifo, on_dead: block}
      - {kind: mail, to: mail, delivery: at_most_once, body: '{"to": {{json .payload.to}}, "subject": "version {{.payload.v}}", "text": "come"}'}
      - %s
  - table: %s
    columns: {published_at: sent_at, event_id: message, event_type: topic, ordering_key: customer, payload: document}
    ledger: pgrelay.processed_events
    routes: [%s]
  - table: %s
    columns: {event_id: task}
    status: {column: state}
    join: JOIN chaos.tasks task ON task.id = o.task
    select: task.topic, task.document
    ready: task.open
    kind: {column: topic}
    routes: [{kind: "q*", to: queue, delivery: at_most_once, body: '{{json .document}}'}]
scheduler: {jobs: [{name: tick, every: 500ms, sql: "INSERT INTO pgrelay.outbox_events (event_type, payload) SELECT 'q.tick', '{\"v\": 1}' FROM chaos.ticking"}]}
poller: %s
relay: {shutdown_timeout: 10s, claim_timeout: 2s, max_in_flight_bytes: 8MiB, retry: {max_attempts: 100, initial: 50ms, max: 1s}}
http: {addr: ''}
`, destination(standardQueue), destination(fifoQueue), mailConnections, callTimeout, ownTable, strings.ReplaceAll(routes, "}, {", "}\n      - {"), bareTable, routes, joinedTable, looks)
}

// schema is the users' side of the database, and the log.
const schema = `
CREATE TABLE public.mail (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), topic text NOT NULL,
	customer text, document jsonb NOT NULL, sent_at timestamptz);
CREATE INDEX ON public.mail (id) WHERE sent_at IS NULL;
CREATE INDEX ON public.mail (customer, id) WHERE sent_at IS NULL AND customer IS NOT NULL;

CREATE SCHEMA chaos;
CREATE TABLE chaos.ticking AS SELECT; -- while it has its row, the job writes one
CREATE TABLE chaos.tasks (id uuid PRIMARY KEY, topic text NOT NULL, document jsonb NOT NULL, open bool NOT NULL, opened timestamptz);
CREATE INDEX ON chaos.tasks (id) WHERE NOT open;
CREATE TABLE public.backfill (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task uuid NOT NULL UNIQUE,
	state text NOT NULL DEFAULT 'PENDING', claimed_at timestamptz);
CREATE INDEX ON public.backfill (id) WHERE state = 'PENDING';
CREATE TABLE chaos.aggregates (key text PRIMARY KEY);
CREATE TABLE chaos.busy (id int PRIMARY KEY, n bigint NOT NULL DEFAULT 0, filling text NOT NULL DEFAULT repeat('busy', 200));
INSERT INTO chaos.busy (id) SELECT generate_series(1, 20);
CREATE TABLE chaos.trouble (outbox text PRIMARY KEY, every int NOT NULL);
CREATE TABLE chaos.log (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(), began timestamptz NOT NULL DEFAULT now(),
	what text NOT NULL, process text NOT NULL DEFAULT coalesce(current_setting('chaos.process', true), ''),
	outbox text NOT NULL DEFAULT '', id bigint NOT NULL DEFAULT 0, epoch bigint NOT NULL DEFAULT 0,
	version int NOT NULL DEFAULT 0, pending bool NOT NULL DEFAULT false, event text NOT NULL DEFAULT '', recipient text NOT NULL DEFAULT '');

-- Arguments: the outbox, its column of payload. What has no payload never changes its version.
CREATE FUNCTION chaos.note_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE r jsonb := to_jsonb(NEW); row_id bigint := NEW.id;
BEGIN
	IF coalesce(current_setting('chaos.process', true), '') <> '' AND
	   EXISTS (SELECT FROM chaos.trouble WHERE outbox = TG_ARGV[0] AND row_id % every = 0) THEN
		RAISE 'this row is not to be stamped now';
	END IF;
	INSERT INTO chaos.log (what, outbox, id, version, pending) VALUES (lower(TG_OP), TG_ARGV[0], row_id, coalesce((r -> TG_ARGV[1] ->> 'v')::int, 1),
		coalesce(r ->> 'published_at', r ->> 'sent_at', r ->> 'dead_at') IS NULL AND coalesce(r ->> 'state' IN ('PENDING', 'PROCESSING'), true));
	RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT OR UPDATE ON pgrelay.outbox_events FOR EACH ROW EXECUTE FUNCTION chaos.note_row('pgrelay.outbox_events', 'payload');
CREATE TRIGGER chaos AFTER INSERT OR UPDATE ON public.mail FOR EACH ROW EXECUTE FUNCTION chaos.note_row('public.mail', 'document');
CREATE TRIGGER chaos AFTER INSERT OR UPDATE ON public.backfill FOR EACH ROW EXECUTE FUNCTION chaos.note_row('public.backfill', '');

CREATE FUNCTION chaos.note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO chaos.log (what, outbox, id, epoch) SELECT 'claim', NEW.outbox, u.id::bigint, NEW.epoch FROM unnest(NEW.ids) AS u(id);
	RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT ON pgrelay.claims FOR EACH ROW EXECUTE FUNCTION chaos.note_claim();

CREATE FUNCTION chaos.note_send() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO chaos.log (what, event, recipient) VALUES (
		CASE WHEN TG_OP = 'INSERT' THEN 'send claimed' WHEN TG_OP = 'DELETE' THEN 'send released' WHEN NEW.sent_at IS NOT NULL THEN 'send made' ELSE 'send unknown' END,
		coalesce(NEW.event_id, OLD.event_id), coalesce(NEW.recipient, OLD.recipient));
	RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT OR UPDATE OR DELETE ON pgrelay.notification_sends FOR EACH ROW EXECUTE FUNCTION chaos.note_send();

CREATE FUNCTION chaos.note_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO chaos.log (what, event) VALUES (CASE TG_OP WHEN 'INSERT' THEN 'recorded' ELSE 'struck' END, coalesce(NEW.event_id, OLD.event_id));
	RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT OR DELETE ON pgrelay.processed_events FOR EACH ROW EXECUTE FUNCTION chaos.note_ledger();

-- The end of a death is that somebody retried or discarded the row.
CREATE FUNCTION chaos.note_death() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE was bool := OLD.dead_at IS NOT NULL; is_now bool := NEW.dead_at IS NOT NULL;
BEGIN
	IF was <> is_now THEN
		INSERT INTO chaos.log (what, outbox, id) VALUES (CASE WHEN is_now THEN 'died' ELSE 'let go' END, coalesce(NEW.outbox, OLD.outbox), coalesce(NEW.row_id, OLD.row_id)::bigint);
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT OR UPDATE OR DELETE ON pgrelay.failures FOR EACH ROW EXECUTE FUNCTION chaos.note_death();

CREATE FUNCTION chaos.note_lead() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO chaos.log (what, epoch) VALUES ('lead', NEW.epoch);
	RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT OR UPDATE OF epoch ON pgrelay.leader FOR EACH ROW EXECUTE FUNCTION chaos.note_lead();
`

// connect opens a session that writers and faults use. It never waits long for a server that is gone.
func (w *world) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return pgx.Connect(ctx, w.db.URL)
}

// exec runs a statement on a session of its own.
func (w *world) exec(sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // a fault may have broken it
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
