package check

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// What follows needs a server that nobody else uses, and restarts it; one after the other.
func TestOnAServerThatIsShortOfEverything(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{
		"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1", "max_slot_wal_keep_size": "1GB",
	}})
	p := healthy(t, server.NewMigrated(t))
	t.Run("no logical WAL", func(t *testing.T) {
		p.t = t
		p.wellBut("wal_level", "is replica", "ALTER SYSTEM SET wal_level = 'logical'")
		require.Len(t, failing(p.examine(), Skipped), 1)
	})
	p.exec(`ALTER SYSTEM SET wal_level = 'logical'`)
	server.Restart(t)
	t.Run("a limited slot is no warning", func(t *testing.T) {
		p.t = t
		p.well()
		require.Empty(t, failing(p.examine(), Warning))
	})
	t.Run("no free slot", func(t *testing.T) { noFreeSlot(t, p) })
	t.Run("a slot that is lost", func(t *testing.T) { lostSlot(t, p) })
	t.Run("who is let in", func(t *testing.T) { refusedConnections(t, p) })
}

func noFreeSlot(t *testing.T, p *patient) {
	p.t = t
	p.exec(`SELECT pg_create_physical_replication_slot('taken')`)
	p.wellBut("slot $slot", "no replication slot is free: 1 of 1", "raise max_replication_slots")
	p.exec(`SELECT pg_drop_replication_slot('taken')`)
	p.exec(`ALTER SYSTEM SET max_wal_senders = 0`)
	p.db.Server.Restart(t)
	p.wellBut("replication", "no WAL sender or connection is free", "raise max_wal_senders")
	p.exec(`ALTER SYSTEM RESET max_wal_senders`)
	p.db.Server.Restart(t)
	p.well()
}

func lostSlot(t *testing.T, p *patient) {
	p.t = t
	p.exec(`SELECT pg_create_logical_replication_slot('` + p.slot() + `', 'pgoutput')`)
	p.well()
	p.cfg.Replication.MaxRetainedWAL = 1
	p.exec(`CREATE TABLE busy AS SELECT generate_series(1, 1000)`)
	require.Contains(t, failing(p.examine(), Warning)[0].Text, "more than max_retained_wal")
	p.exec(`ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'`)
	p.db.Server.Restart(t)
	for range 3 {
		p.exec(`SELECT pg_switch_wal()`)
		p.exec(`CHECKPOINT`)
	}
	report := p.examine()
	require.Empty(t, failing(report, Failure))
	require.Contains(t, failing(report, Warning)[0].Text, "is lost")
	p.exec(`SELECT pg_drop_replication_slot('` + p.slot() + `')`)
	p.well()
}

func refusedConnections(t *testing.T, p *patient) {
	p.t = t
	p.exec(`DO $$ BEGIN EXECUTE format('COPY (SELECT line FROM (VALUES (1, ''host all postgres 127.0.0.1/32 trust''),
		(2, ''host all all 127.0.0.1/32 scram-sha-256'')) v(n, line) ORDER BY n) TO %L', current_setting('hba_file')); END $$`)
	p.exec(`SELECT pg_reload_conf()`)
	right := p.url
	for name, c := range map[string]struct {
		change    func(*url.URL)
		text, fix string
	}{
		"wrong password": {func(u *url.URL) { u.User = url.UserPassword(p.role, "wrong-s3cr3t") }, "password authentication failed", "correct the password"},
		"unknown role":   {func(u *url.URL) { u.User = url.UserPassword("stranger", "wrong-s3cr3t") }, "password authentication failed", "correct the password"},
		"wrong database": {func(u *url.URL) { u.Path = "/nowhere" }, `database "nowhere" does not exist`, `CREATE DATABASE "nowhere"`},
		"wrong host":     {func(u *url.URL) { u.Host = "host.invalid:5432" }, "cannot be found", "correct the host"},
	} {
		p.url = right
		c.change(&p.url)
		p.wellBut("connection", c.text, c.fix)
		require.Len(t, failing(p.examine(), OK), 4, name) // config and the destinations were looked at all the same
	}
	p.url = right
	p.exec(fmt.Sprintf(`REVOKE CONNECT ON DATABASE %s FROM PUBLIC`, p.db.Name))
	line := p.wellBut("connection", "permission denied for database", "GRANT CONNECT ON DATABASE")
	p.exec(line.Fix)
	p.well()
}
