package check

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// serverFacts is what the server says of itself and of our session.
type serverFacts struct {
	Version        string
	VersionNum     int
	Role, Database string
	PID            uint32 // of the backend, as the connection's other end told it
	BackendPID     uint32 // as the backend tells it
	PlanCacheMode  string // one of the settings that the relay asks for at the start
	WALLevel       string
	Slots          int
	MaxSlots       int
	KeepSize       string // max_slot_wal_keep_size; -1: no limit
	MayCreate      bool   // CREATE on the database
	// Timeouts are settings of the role, database or server that the relay doesn't override, other than 0.
	Timeouts []string
	Skew     time.Duration // how far the host's clock is ahead of the server's
}

const serverSQL = `SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_user, current_database(), pg_backend_pid(),
	current_setting('plan_cache_mode'), current_setting('wal_level'), (SELECT count(*) FROM pg_catalog.pg_replication_slots),
	current_setting('max_replication_slots')::int, coalesce(current_setting('max_slot_wal_keep_size', true), ''),
	has_database_privilege(current_database(), 'CREATE'),
	ARRAY(SELECT name::text FROM pg_catalog.pg_settings WHERE name IN ('transaction_timeout', 'idle_session_timeout') AND setting <> '0' ORDER BY name),
	clock_timestamp()`

func (d *doctor) checkServer(ctx context.Context) error {
	f := &d.server
	var now time.Time
	before := time.Now()
	err := d.conn.QueryRow(ctx, serverSQL).Scan(&f.Version, &f.VersionNum, &f.Role, &f.Database, &f.BackendPID, &f.PlanCacheMode,
		&f.WALLevel, &f.Slots, &f.MaxSlots, &f.KeepSize, &f.MayCreate, &f.Timeouts, &now)
	if err != nil {
		return fmt.Errorf("reading the server's settings: %w", err)
	}
	after := time.Now()
	f.Skew = before.Add(after.Sub(before) / 2).Sub(now)
	f.PID = d.conn.PgConn().PID()
	d.add(judgeServer(*f)...)
	return nil
}

// oldestServer is the first whose snapshots tell full transaction ids.
const oldestServer = 130000

// judgeServer says who answers, and what is in the way of the relay's sessions.
func judgeServer(f serverFacts) []Line {
	lines := []Line{judgePooler(f)}
	if f.VersionNum < oldestServer {
		lines = append(lines, failure("server", "upgrade to PostgreSQL 13 or later", "PostgreSQL %s is too old", f.Version))
	}
	if len(f.Timeouts) > 0 {
		var reset []string
		for _, name := range f.Timeouts {
			reset = append(reset, fmt.Sprintf("ALTER ROLE %s SET %s = 0", quote(f.Role), name))
		}
		lines = append(lines, warning("settings", "run: "+strings.Join(reset, "; "),
			"%s ends sessions of the relay that do nothing wrong; it reconnects each time", strings.Join(f.Timeouts, " and ")))
	}
	return append(lines, judgeClock(f.Skew))
}

// judgePooler tells a pooler by what it does to a session: it answers with a process id of its own, and may swallow
// the settings that the session asked for.
func judgePooler(f serverFacts) Line {
	switch {
	case f.PlanCacheMode != "force_generic_plan":
		return failure("connection", poolerFix, "a pooler stands in front of PostgreSQL and drops the session's settings")
	case f.PID != f.BackendPID:
		return warning("connection", poolerFix,
			"something stands between pgrelay and PostgreSQL; if it is a pooler in transaction mode, the leader's lock holds nothing")
	}
	return ok("connection", "PostgreSQL %s, database %s, role %s", f.Version, f.Database, f.Role)
}

// skewLimit is what a log's reader would stumble over; from a few minutes on AWS refuses signatures.
const skewLimit = 5 * time.Second

func judgeClock(skew time.Duration) Line {
	if skew.Abs() <= skewLimit {
		return ok("clock", "host and database agree")
	}
	ahead := "ahead of"
	if skew < 0 {
		ahead = "behind"
	}
	return warning("clock", "run a time service (chrony, systemd-timesyncd) on both",
		"the host's clock is %s %s the database's; rows don't mind, but AWS refuses signatures from five minutes on", skew.Abs().Round(time.Second), ahead)
}

func judgeWALLevel(f serverFacts) Line {
	if f.WALLevel == "logical" {
		return ok("wal_level", "logical")
	}
	return failure("wal_level", "run: ALTER SYSTEM SET wal_level = 'logical' (rds.logical_replication = 1 on Amazon RDS), and restart the server",
		"is %s, so there is no stream; the poller relays meanwhile", f.WALLevel)
}
