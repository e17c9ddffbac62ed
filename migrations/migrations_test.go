package migrations_test

import (
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, config := db.Connect(t), config(t, db.URL)

	up, err := migrations.Up(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, []string{"00001_outbox.sql", "00002_bookkeeping.sql", "00003_views.sql"}, names(up))
	require.NoError(t, migrations.Check(t.Context(), conn))

	again, err := migrations.Up(t.Context(), config)
	require.NoError(t, err)
	require.Empty(t, again)

	down, err := migrations.Down(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, []string{"00003_views.sql", "00002_bookkeeping.sql", "00001_outbox.sql"}, names(down))
	require.False(t, schemaExists(t, conn))
	require.ErrorIs(t, migrations.Check(t.Context(), conn), migrations.ErrMissing)

	down, err = migrations.Down(t.Context(), config)
	require.NoError(t, err)
	require.Empty(t, down)

	up, err = migrations.Up(t.Context(), config)
	require.NoError(t, err)
	require.Len(t, up, 3)
	require.NoError(t, migrations.Check(t.Context(), conn))
}

func TestConcurrentUpsApplyEachMigrationOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	config := config(t, db.URL)
	var all sync.WaitGroup
	applied, errs := make([][]migrations.Migration, 4), make([]error, 4)
	for i := range applied {
		all.Go(func() { applied[i], errs[i] = migrations.Up(t.Context(), config) })
	}
	all.Wait()
	var total []migrations.Migration
	for i := range applied {
		require.NoError(t, errs[i])
		total = append(total, applied[i]...)
	}
	require.Equal(t, []string{"00001_outbox.sql", "00002_bookkeeping.sql", "00003_views.sql"}, names(total))
}

func TestOwnerWithoutSuperuserMigrates(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := role(t, db)
	db.Exec(t, "ALTER DATABASE "+db.Name+" OWNER TO "+owner)
	config := config(t, as(t, db, owner))
	_, err := migrations.Up(t.Context(), config)
	require.NoError(t, err)
	_, err = migrations.Down(t.Context(), config)
	require.NoError(t, err)
}

func TestSchemaMadeByTheAdministratorNeedsNoRightsOnTheDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := role(t, db)
	config := config(t, as(t, db, owner))
	_, err := migrations.Up(t.Context(), config)
	require.ErrorContains(t, err, "creating schema pgrelay")

	db.Exec(t, "CREATE SCHEMA pgrelay AUTHORIZATION "+owner)
	_, err = migrations.Up(t.Context(), config)
	require.NoError(t, err)
}

func TestDownRefusesWhileAUsersViewHangsOnTheSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	db.Exec(t, "CREATE VIEW public.mine AS SELECT id FROM pgrelay.outbox_events")
	db.Exec(t, "INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('A', '{}')")
	_, err := migrations.Down(t.Context(), config(t, db.URL))
	require.ErrorContains(t, err, "outbox_events")

	_, err = migrations.Up(t.Context(), config(t, db.URL))
	require.NoError(t, err)
	conn := db.Connect(t)
	require.NoError(t, migrations.Check(t.Context(), conn))
	var rows int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM public.mine").Scan(&rows))
	require.Equal(t, 1, rows)
}

func config(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	return c
}

// role makes a role without any rights, named for the database because roles belong to
// the whole server.
func role(t *testing.T, db *pgtest.Database) string {
	t.Helper()
	name := "role_" + db.Name
	db.Exec(t, "CREATE ROLE "+name+" LOGIN")
	t.Cleanup(func() { db.Exec(t, "REASSIGN OWNED BY "+name+" TO postgres; DROP OWNED BY "+name+"; DROP ROLE "+name) })
	return name
}

func as(t *testing.T, db *pgtest.Database, role string) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	u.User = url.User(role)
	return u.String()
}

func names(ms []migrations.Migration) []string {
	var names []string
	for _, m := range ms {
		names = append(names, m.Name)
	}
	return names
}

func schemaExists(t *testing.T, conn *pgx.Conn) (there bool) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT to_regnamespace('pgrelay') IS NOT NULL").Scan(&there))
	return there
}
