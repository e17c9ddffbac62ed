package e2e_test

import (
	"net/url"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// TestTheRightsInTheDocumentsAreEnough runs the SQL of docs/rights.md as it stands and works with the roles that it makes.
func TestTheRightsInTheDocumentsAreEnough(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, pgtest.StartServer(t, pgtest.Options{}).NewMigrated(t), nil)
	w.configure(sections{"outboxes": "[{table: pgrelay.outbox_events, ledger: public.processed_events, routes: " + routes + "}, {table: public.email_outbox, " +
		"sends: {table: public.booking_notification_sends, columns: {event_id: booking, event_type: notification}}, routes: [{kind: once, to: queue, delivery: at_most_once}, {kind: '*', to: queue}]}]"})
	w.exec(`CREATE ROLE app`)
	w.exec(`CREATE TABLE email_outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		event_type text, payload jsonb, published_at timestamptz, dead_at timestamptz, event_id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid())`)
	w.exec(`CREATE INDEX ON email_outbox (id) WHERE published_at IS NULL AND dead_at IS NULL`)
	w.exec(`ALTER TABLE email_outbox ENABLE ROW LEVEL SECURITY`)
	w.exec(`CREATE TABLE processed_events (event_id uuid PRIMARY KEY, processed_at timestamptz)`)
	w.exec(`CREATE TABLE booking_notification_sends (booking uuid, recipient text, notification text, sent_at timestamptz, UNIQUE (recipient, booking, notification))`)
	text, err := os.ReadFile("../../docs/rights.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.Len(t, blocks, 7)
	for _, block := range blocks {
		w.exec(string(block[1]))
	}
	as := func(role string) []string {
		address, err := url.Parse(w.db.URL)
		require.NoError(t, err)
		address.User = url.User(role)
		return []string{"DATABASE_URL=" + address.String()}
	}
	does := func(role string, args ...string) (int, string) {
		p := w.launch(as(role), args...)
		code := p.wait()
		return code, p.stdout.String() + p.stderr.String()
	}

	code, out := does("pgrelay", "check")
	require.Zero(t, code, out)
	p := w.launch(as("pgrelay"), "run")
	w.eventually("1", `SELECT count(*)::text FROM pg_replication_slots WHERE active`)
	w.exec(`INSERT INTO email_outbox (event_type, payload) VALUES ('q', '1'), ('once', '2')`)
	w.exec(`SET ROLE app`)
	w.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', '1'), ('unknown', '2')`)
	w.exec(`RESET ROLE`)
	w.arrive(standardQueue, 3)
	w.settled(0)
	code, out = does("pgrelay", "republish", "--table", "public.email_outbox", "--id", "1")
	require.Zero(t, code, out)
	w.arrive(standardQueue, 4)
	p.stop()
	w.eventually("1", `SELECT count(*)::text FROM booking_notification_sends WHERE sent_at IS NOT NULL`)

	row := []string{"--table", "pgrelay.outbox_events", "--id", "2"}
	for _, args := range [][]string{
		{"status"}, {"migrate", "status"}, {"dead", "list"}, append([]string{"dead", "show"}, row...), append([]string{"explain"}, row...), {"sends", "list"},
		{"render", "--table", "pgrelay.outbox_events", "--id", "1"},
	} {
		code, out = does("support", args...)
		require.Zero(t, code, "%v: %s", args, out)
	}
	for _, args := range [][]string{append([]string{"republish"}, row...), append([]string{"dead", "retry"}, row...), append([]string{"dead", "discard"}, row...)} {
		code, out = does("support", args...)
		require.Equal(t, 1, code, "%v: %s", args, out)
		require.Contains(t, out, "permission denied", args)
		require.Contains(t, out, "docs/rights.md", args)
	}
}
