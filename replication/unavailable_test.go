package replication

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestASlotThatSomebodyReadsIsLeftToThemAndTakenWhenFree(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t)).start().connected()
	r.stop()
	other := holdSlot(t, r)
	r.start()
	require.Contains(t, r.unavailable(ReasonSlotHeld), fmt.Sprintf("process %d (another reader) from 127.0.0.1", other.PID()))
	require.Len(t, r.sink.caughtUp(), 1, "a try asks nobody to look")
	closeConn(other)
	r.connected()
	r.arrives("outbox", r.insert(1)...)
	require.Equal(t, 1, strings.Count(r.logs.String(), `"reason":"slot_held"`), "logged once, not at each try")
}

func TestAWalsenderOfOursThatOutlivedItsConnectionIsEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t)).start().connected()
	r.stop()
	stale := holdSlot(t, r) // as after a half-open connection
	sql := r.db.Connect(t)
	s := &Stream{cfg: r.cfg, lastPID: int32(stale.PID())}
	st, err := s.releasedSlot(t.Context(), sql)
	require.NoError(t, err)
	require.Zero(t, st.Holder.PID)
	require.True(t, st.Exists)
}

// holdSlot reads the slot of a stream that is stopped.
func holdSlot(t *testing.T, r *rig) *pgconn.PgConn {
	t.Helper()
	cfg := streamConfig(r.cfg.Conn)
	cfg.RuntimeParams["application_name"] = "another reader"
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { closeConn(conn) })
	require.NoError(t, r.stream.start(t.Context(), conn))
	return conn
}

func TestDropRefusesWhatIsNotOursToDrop(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t)).start().connected()
	r.stop()
	conn := r.db.Connect(t)
	require.ErrorIs(t, Drop(t.Context(), conn, "no_such_slot"), ErrNoSlot)

	other := holdSlot(t, r)
	require.ErrorContains(t, Drop(t.Context(), conn, r.cfg.Slot), fmt.Sprintf("is read by process %d (another reader)", other.PID()))
	closeConn(other)
	r.eventually("the slot is free", func() error {
		if pid := r.slot().Holder.PID; pid != 0 {
			return fmt.Errorf("held by %d", pid)
		}
		return nil
	})
	require.ErrorContains(t, Drop(t.Context(), r.db.Server.NewDatabase(t).Connect(t), r.cfg.Slot), r.db.Name)
	require.NoError(t, Drop(t.Context(), conn, r.cfg.Slot))
	require.False(t, r.slot().Exists)
}

func TestASlotOfAnotherDatabaseOrPluginIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make string
		says string
	}{
		"plugin":   {`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, `plugin "test_decoding"`},
		"physical": {`SELECT pg_create_physical_replication_slot($1)`, "physical"},
		"database": {`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, `belongs to database`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pgtest.New(t))
			maker := r.db
			if name == "database" {
				maker = pgtest.New(t)
			}
			maker.Exec(t, c.make, r.cfg.Slot)
			t.Cleanup(func() { maker.Exec(t, `SELECT pg_drop_replication_slot($1)`, r.cfg.Slot) })
			r.start()
			require.Contains(t, r.unavailable(ReasonSlotForeign), c.says)
			require.True(t, r.slot().Exists)
			r.stop()
		})
	}
}

func TestAPlainRoleNeedsThePublicationAndReplication(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE ROLE plain LOGIN; GRANT SELECT, UPDATE ON outbox TO plain`)
	t.Cleanup(func() { r.db.Exec(t, `DROP OWNED BY plain; DROP ROLE plain`) })
	u, err := url.Parse(r.db.URL)
	require.NoError(t, err)
	u.User = url.User("plain")
	r.cfg.Conn, err = pgx.ParseConfig(u.String())
	require.NoError(t, err)
	r.start()
	statement := r.unavailable(ReasonPublication)
	_, statement, found := strings.Cut(statement, "CREATE")
	require.True(t, found)
	statement = "CREATE" + statement
	r.db.Exec(t, statement)
	require.Contains(t, r.unavailable(ReasonPermission), "REPLICATION")
	r.db.Exec(t, `ALTER ROLE plain REPLICATION`)
	r.connected()
	r.arrives("outbox", r.insert(1)...)

	// Somebody else's publication is not touched, and what its owner has to run is true.
	r.stop()
	r.db.Exec(t, `CREATE TABLE rest (id int); ALTER PUBLICATION pgrelay SET TABLE rest`)
	r.start()
	statement = r.unavailable(ReasonPublication)
	statement = statement[strings.Index(statement, "ALTER PUBLICATION"):strings.Index(statement, ", or configure")]
	require.Equal(t, []string{"rest"}, query[[]string](t, r.db, `SELECT array_agg(tablename::text) FROM pg_publication_tables`))
	r.db.Exec(t, statement)
	r.connected()
	tables := query[[]string](t, r.db, `SELECT array_agg(tablename::text ORDER BY 1) FROM pg_publication_tables`)
	require.True(t, slices.Equal([]string{"outbox", "rest"}, tables), "%v", tables)
}

func TestOurOwnPublicationIsAltered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]string{
		"of another table":      `CREATE PUBLICATION pgrelay FOR TABLE rest WITH (publish = 'insert')`,
		"of nothing":            `CREATE PUBLICATION pgrelay WITH (publish = 'truncate')`,
		"of leaves":             `CREATE PUBLICATION pgrelay FOR TABLE outbox, parts WITH (publish = 'insert')`,
		"of everything, leaves": `CREATE PUBLICATION pgrelay FOR ALL TABLES WITH (publish = 'insert')`,
		"with a row filter":     `CREATE PUBLICATION pgrelay FOR TABLE outbox WHERE (id > 10), parts (id) WITH (publish = 'insert', publish_via_partition_root = true)`,
		"without the id":        `CREATE PUBLICATION pgrelay FOR TABLE outbox (payload), parts (day) WITH (publish = 'insert', publish_via_partition_root = true)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pgtest.New(t))
			if r.db.Server.Version < columnListVersion && strings.Contains(name, "with") {
				return // has neither filters nor column lists
			}
			r.db.Exec(t, `CREATE TABLE rest (id int); CREATE TABLE parts (id int, day int) PARTITION BY LIST (day); CREATE TABLE leaf PARTITION OF parts DEFAULT`)
			r.db.Exec(t, c)
			r.cfg.Tables = append(r.cfg.Tables, Table{Schema: "public", Name: "parts", IDColumn: "id", Canonical: "parts"})
			r.start().connected()
			r.db.Exec(t, `INSERT INTO parts VALUES (1, 1)`)
			r.arrives("parts", "1")
			r.arrives("outbox", r.insert(1)...)
		})
	}
}

func TestAPublicationThatOthersReadIsNotAltered(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE TABLE rest (id int); CREATE PUBLICATION pgrelay FOR TABLE rest`)
	r.start()
	require.Contains(t, r.unavailable(ReasonPublication), "also publishes updates")
}

func TestASlotWithoutAPublicationToStreamFromIsLetGoBeforeItFillsTheDisk(t *testing.T) {
	t.Parallel()
	// On a server that others share their WAL would count as well.
	r := newRig(t, pgtest.StartServer(t, pgtest.Options{}).NewDatabase(t))
	r.cfg.MaxRetainedWAL = 2 << 20
	r.timing.watchEvery = 100 * time.Millisecond
	r.start().connected()
	r.db.Exec(t, `CREATE TABLE busy (x text); ALTER PUBLICATION pgrelay SET (publish = 'delete')`)
	require.Contains(t, r.unavailable(ReasonPublication), "also publishes updates")
	require.True(t, r.slot().Exists)
	r.db.Exec(t, `INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 3000)`)
	r.eventually("the slot is let go", func() error {
		if r.slot().Exists {
			return errors.New("it is there")
		}
		return nil
	})
	r.db.Exec(t, `ALTER PUBLICATION pgrelay SET (publish = 'insert')`)
	r.caughtUp("slot created: missing")
}

func TestALeafOfAPublishedTreeCannotBeAnOutbox(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE TABLE parts (id int) PARTITION BY LIST (id); CREATE TABLE leaf PARTITION OF parts DEFAULT;
		CREATE PUBLICATION pgrelay FOR TABLE parts WITH (publish = 'insert', publish_via_partition_root = true)`)
	r.cfg.Tables = []Table{{Schema: "public", Name: "leaf", IDColumn: "id", Canonical: "leaf"}}
	r.start()
	require.Contains(t, r.unavailable(ReasonPublication), "table leaf under its own name")
}
