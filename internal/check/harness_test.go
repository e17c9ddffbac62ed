package check

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
	"pgrelay/internal/sqstest"
	"pgrelay/relay"
	"pgrelay/relay/sqs"
	"pgrelay/relay/stdout"
	"pgrelay/replication"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Secrets that no report may show.
const (
	password  = "pg-s3cr3t"
	secretKey = "aws-s3cr3t"
)

// patient is a set-up that is healthy until a test breaks it: a role that owns nothing, a table of the user's beside our own,
// a publication that the owner has made, two queues.
type patient struct {
	t    *testing.T
	db   *pgtest.Database
	role string
	sqs  *sqstest.TestServer
	url  url.URL // as the role
	cfg  *config.Config
}

const settings = `
database: {url: "postgres://nobody@127.0.0.1/none"}
http: {addr: ""}
destinations:
  fifo: {type: sqs, queue: bookings.fifo, region: eu-west-1}
  plain: {type: sqs, queue: invoices, region: eu-west-1}
  console: {type: stdout}
outboxes:
  - {table: pgrelay.outbox_events, routes: [{kind: "*", to: fifo}]}
  - {table: public.bookings, routes: [{kind: "a", to: fifo}, {kind: "*", to: plain}]}
`

const healthySQL = `
SET password_encryption = 'scram-sha-256'; -- before 14 it is md5
CREATE ROLE %[1]s LOGIN REPLICATION PASSWORD '` + password + `';
GRANT USAGE ON SCHEMA pgrelay TO %[1]s;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgrelay TO %[1]s;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgrelay TO %[1]s;
CREATE TABLE public.bookings (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
	event_type text NOT NULL, ordering_key text, payload jsonb NOT NULL, available_at timestamptz, published_at timestamptz);
CREATE INDEX pending ON public.bookings (id) WHERE published_at IS NULL AND available_at IS NULL;
CREATE INDEX deferred ON public.bookings (available_at, id) WHERE published_at IS NULL AND available_at IS NOT NULL;
CREATE INDEX key_all ON public.bookings (ordering_key, id) WHERE published_at IS NULL;
GRANT SELECT, UPDATE (published_at) ON public.bookings TO %[1]s;
CREATE PUBLICATION pgrelay FOR TABLE public.bookings, pgrelay.outbox_events WITH (publish = 'insert')`

// patients counts roles, which a server has for all its databases.
var patients atomic.Int64

func healthy(t *testing.T, db *pgtest.Database) *patient {
	t.Helper()
	p := &patient{t: t, db: db, role: fmt.Sprintf("patient_%d", patients.Add(1)), sqs: sqstest.Start(t)}
	db.Exec(t, fmt.Sprintf(healthySQL, p.role))
	t.Cleanup(func() { db.Exec(t, fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, p.role)) })
	p.sqs.CreateQueue("bookings.fifo", nil)
	p.sqs.CreateQueue("invoices", nil)
	address, err := url.Parse(db.URL)
	require.NoError(t, err)
	p.url = *address
	p.url.User = url.UserPassword(p.role, password)
	p.configure("", "")
	return p
}

// configure reads the settings again, with something of them replaced.
func (p *patient) configure(old, replacement string) {
	p.t.Helper()
	require.Contains(p.t, settings, old)
	cfg, err := config.Parse("pgrelay.yaml", []byte(strings.Replace(settings, old, replacement, 1)), nil)
	require.NoError(p.t, err)
	p.cfg = cfg
}

// exec runs SQL as the superuser; $role stands for the role.
func (p *patient) exec(sql string) {
	p.t.Helper()
	p.db.Exec(p.t, strings.ReplaceAll(sql, "$role", p.role))
}

func (p *patient) conn() *pgx.ConnConfig {
	c, err := pgx.ParseConfig(p.url.String())
	require.NoError(p.t, err)
	return c
}

func (p *patient) slot() string { return p.cfg.SlotName(p.db.Name) }

// examine runs the check, which must not show a secret.
func (p *patient) examine() Report {
	p.t.Helper()
	in := Input{Config: p.cfg, Conn: p.conn()}
	for _, name := range []string{"fifo", "plain", "console"} { // any order will do
		d := Destination{Config: p.cfg.Destinations[name]}
		d.Sink = relay.Sink{Name: name, FIFO: d.Config.FIFO(), Ordered: d.Config.FIFO() || name == "console"}
		if d.Config.Type == config.TypeStdout {
			d.Publisher, d.Err = stdout.New(d.Config, io.Discard)
		} else {
			d.Config.Endpoint = p.sqs.URL
			keys := credentials.NewStaticCredentialsProvider("AKIDTEST", secretKey, "")
			d.Publisher, d.Err = sqs.New(p.t.Context(), d.Config, sqs.Options{Credentials: keys})
		}
		in.Destinations = append(in.Destinations, d)
	}
	report := Run(p.t.Context(), in)
	text, err := json.Marshal(report)
	require.NoError(p.t, err)
	for _, secret := range []string{password, secretKey, "wrong-s3cr3t"} {
		require.NotContains(p.t, string(text), secret)
	}
	for _, l := range report.Lines {
		require.NotEmpty(p.t, l.Name)
		require.NotEmpty(p.t, l.Text, l)
		require.Equal(p.t, l.Level == Failure || l.Level == Warning, l.Fix != "", l)
	}
	return report
}

// listen takes a port that the caller closes.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// failing are the lines of a level.
func failing(r Report, level Level) (lines []Line) {
	for _, l := range r.Lines {
		if l.Level == level {
			lines = append(lines, l)
		}
	}
	return lines
}

// wellBut wants exactly one failure.
func (p *patient) wellBut(name, text, fix string) Line {
	p.t.Helper()
	lines := failing(p.examine(), Failure)
	require.Len(p.t, lines, 1)
	require.Equal(p.t, strings.ReplaceAll(name, "$slot", p.slot()), lines[0].Name)
	require.Contains(p.t, lines[0].Text, text)
	require.Contains(p.t, lines[0].Fix, strings.ReplaceAll(fix, "$role", `"`+p.role+`"`))
	return lines[0]
}

// well wants none, and nothing left out.
func (p *patient) well() {
	p.t.Helper()
	report := p.examine()
	require.Empty(p.t, failing(report, Failure))
	require.Empty(p.t, failing(report, Skipped))
}

// take follows the advice of a line, as the superuser: what stands behind "run:" is what one has to paste.
func (p *patient) take(advice string) {
	p.t.Helper()
	_, sql, ok := strings.Cut(advice, "run: ")
	require.True(p.t, ok, advice)
	for _, one := range strings.Split(sql, "; ") {
		p.db.Exec(p.t, one)
	}
}

func inspect(p *patient) replication.SlotState {
	st, err := replication.Inspect(p.t.Context(), p.db.Connect(p.t), p.slot())
	require.NoError(p.t, err)
	return st
}
