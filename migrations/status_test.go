package migrations_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/migrations"
)

func TestCheckTellsMissingOutdatedAndNewerApart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		want   error
	}{
		"no schema":        {"DROP SCHEMA pgrelay CASCADE", migrations.ErrMissing},
		"schema, no table": {"DROP TABLE pgrelay.migrations", migrations.ErrMissing},
		"nothing applied":  {"DELETE FROM pgrelay.migrations WHERE version_id > 0", migrations.ErrMissing},
		"last one missing": {"DELETE FROM pgrelay.migrations WHERE version_id = 3", migrations.ErrOutdated},
		"one more":         {"INSERT INTO pgrelay.migrations (version_id, is_applied) VALUES (99, true)", migrations.ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Migrated(t)
			conn := db.Connect(t)
			require.NoError(t, migrations.Check(t.Context(), conn))
			db.Exec(t, c.change)
			require.ErrorIs(t, migrations.Check(t.Context(), conn), c.want)
		})
	}
}

// The rights that 00001_outbox.sql asks for are those that the relay needs.
func TestRoleOfTheRelayNeedsOnlyTheDocumentedRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	relay := role(t, db)
	conn, err := pgx.Connect(t.Context(), as(t, db, relay))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	require.ErrorContains(t, migrations.Check(t.Context(), conn), "permission denied")

	db.Exec(t, `GRANT USAGE ON SCHEMA pgrelay TO `+relay+`;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgrelay TO `+relay+`;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgrelay TO `+relay)
	require.NoError(t, migrations.Check(t.Context(), conn))
	_, err = conn.Exec(t.Context(), `INSERT INTO pgrelay.claims (outbox, instance, ids) VALUES ('t', gen_random_uuid(), '{1}');
		INSERT INTO pgrelay.leader (instance, epoch) VALUES (gen_random_uuid(), 1) ON CONFLICT (singleton) DO UPDATE SET epoch = 2;
		SELECT nextval('pgrelay.generations');
		DELETE FROM pgrelay.claims`)
	require.NoError(t, err)
}

func TestProducerNeedsInsertOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	producer := role(t, db)
	db.Exec(t, `GRANT USAGE ON SCHEMA pgrelay TO `+producer+`; GRANT INSERT ON pgrelay.outbox_events TO `+producer)
	conn, err := pgx.Connect(t.Context(), as(t, db, producer))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), `INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('A', '{}')`)
	require.NoError(t, err)
}

func TestStatusListsWhatIsAppliedAndSince(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	status, err := migrations.Status(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, []migrations.Migration{
		{Version: 1, Name: "00001_outbox.sql"}, {Version: 2, Name: "00002_bookkeeping.sql"}, {Version: 3, Name: "00003_views.sql"},
	}, status)
	require.False(t, schemaExists(t, conn), "looking creates nothing")

	// A server and a session that live elsewhere don't shift the time.
	db.Exec(t, "ALTER DATABASE "+db.Name+" SET timezone = 'Pacific/Auckland'")
	_, err = migrations.Up(t.Context(), config(t, db.URL))
	require.NoError(t, err)
	var now time.Time
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT now()").Scan(&now))
	status, err = migrations.Status(t.Context(), db.Connect(t))
	require.NoError(t, err)
	for _, m := range status {
		require.WithinDuration(t, now, m.AppliedAt, time.Minute, m.Name)
	}
}
