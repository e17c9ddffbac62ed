package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// hostile are settings with which a role or a database changes what statements do, how values print, and for how long anything may take.
var hostile = []string{
	`statement_timeout = '50ms'`, `lock_timeout = '10ms'`, `idle_in_transaction_session_timeout = '10ms'`, `wal_sender_timeout = '1s'`,
	`default_transaction_read_only = on`, `default_transaction_isolation = 'serializable'`, `default_transaction_deferrable = on`,
	`search_path = 'nothing'`, `row_security = off`, `quote_all_identifiers = on`, `standard_conforming_strings = off`, `array_nulls = off`,
	`DateStyle = 'German'`, `TimeZone = 'Asia/Kathmandu'`, `IntervalStyle = 'sql_standard'`, `bytea_output = 'escape'`, `extra_float_digits = -15`,
	`client_encoding = 'LATIN1'`, `client_min_messages = 'debug1'`,
}

// hostility gives them to a role or a database.
func hostility(to string) string {
	var sql strings.Builder
	for _, setting := range hostile {
		fmt.Fprintf(&sql, "ALTER %s SET %s;", to, setting)
	}
	return sql.String()
}

func TestADatabaseWithHostileSettingsIsMigratedAndRelayed(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, pgtest.New(t), nil) // the producer's session is older than the settings
	w.exec(hostility("DATABASE " + w.db.Name))
	w.done("migrate", "up")
	p := w.start()
	w.insert("q", 3)
	w.arrive(standardQueue, 3)
	w.settled(0)
	w.done("republish", "--table", "pgrelay.outbox_events", "--id", "2")
	w.arrive(standardQueue, 4)
	w.insert("unknown", 1)
	w.settled(0)
	p.stop()
	require.Equal(t, "pgrelay.outbox_events 4", w.string(`SELECT outbox || ' ' || row_id FROM pgrelay.dead_letters`))
}

func TestHostileSettingsOfTheRoleChangeNothingOfWhatIsSent(t *testing.T) {
	t.Parallel()
	p := newPatient(t, pgtest.Migrated(t))
	p.configure(sections{"outboxes": `[{table: public.bookings, routes: [{kind: "q*", to: queue, body: '{{.bytes}} {{.at}} {{.span}} {{.f}} {{.day}}'}]}, ` +
		`{table: pgrelay.outbox_events, routes: ` + routes + `}]`})
	p.harm(`ALTER TABLE bookings ADD bytes bytea DEFAULT '\x0041ff', ADD at timestamptz DEFAULT '2026-05-04 12:00:00.5+02', ADD span interval DEFAULT '1 year 2 days 03:04:05',
		ADD f float8 DEFAULT 0.1::float8 + 0.2, ADD day date DEFAULT '2026-05-04'`)
	p.harm(hostility("ROLE $role"))
	run := p.start()
	run.says("replication stream started")
	p.exec(`INSERT INTO bookings DEFAULT VALUES`)
	p.relays()
	p.settled(0)
	p.eventually("0", `SELECT count(*)::text FROM bookings WHERE published_at IS NULL`)
	run.stop()
	require.NotContains(t, run.stderr.String(), `"level":"error"`)
	require.Contains(t, bodies(p.sqs.Messages(standardQueue)), `\x0041ff 2026-05-04 10:00:00.5+00 1 year 2 days 03:04:05 0.30000000000000004 2026-05-04`)
	require.Equal(t, "1 slots, 1 publications, 0 claims, 1 leaders", p.left())
}
