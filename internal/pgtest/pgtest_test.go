package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.Main(m)
}

func TestDatabaseIsUTF8AndDecodesLogically(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	for setting, want := range map[string]string{"server_encoding": "UTF8", "wal_level": "logical", "fsync": "off"} {
		require.Equal(t, want, show(t, conn, setting), setting)
	}
	var name string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	require.Equal(t, db.Name, name)
	require.GreaterOrEqual(t, db.Server.Version, 13)
}

func TestDatabasesOfParallelTestsAreSeparate(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Exec(t, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
			db.Exec(t, "INSERT INTO t VALUES ($1)", i)
		})
	}
}

func TestDatabaseInUseByAWalsenderIsDropped(t *testing.T) {
	t.Parallel()
	var name string
	var server *pgtest.Server
	var conn *pgx.Conn
	t.Run("test", func(t *testing.T) {
		db := pgtest.New(t)
		name, server = db.Name, db.Server
		// Free, and in use by a session that outlives the test's own cleanups.
		db.Exec(t, "SELECT pg_create_logical_replication_slot('free', 'pgoutput')")
		var err error
		conn, err = pgx.Connect(context.Background(), db.URL+"&replication=database")
		require.NoError(t, err)
		for _, command := range []string{
			"CREATE_REPLICATION_SLOT held LOGICAL pgoutput",
			"CREATE PUBLICATION p FOR ALL TABLES",
		} {
			_, err = conn.PgConn().Exec(t.Context(), command).ReadAll()
			require.NoError(t, err)
		}
		conn.PgConn().Frontend().SendQuery(&pgproto3.Query{String: startReplication})
		require.NoError(t, conn.PgConn().Frontend().Flush())
		probe := db.Connect(t)
		pgtest.Eventually(t, time.Minute, func() bool {
			var active bool
			require.NoError(t, probe.QueryRow(t.Context(),
				"SELECT active FROM pg_replication_slots WHERE slot_name = 'held'").Scan(&active))
			return active
		}, "the slot becomes active")
	})
	runtime.KeepAlive(conn) // unreachable, the collector would have closed it
	other := pgtest.New(t)
	require.Same(t, server, other.Server, "tests share one server")
	var left int
	require.NoError(t, other.Connect(t).QueryRow(t.Context(),
		"SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&left))
	require.Zero(t, left)
}

func TestServerKeepsAddressAndDataOverCrashAndRestart(t *testing.T) {
	t.Parallel()
	srv := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica", "fsync": "on"}})
	db := srv.NewDatabase(t)
	db.Exec(t, "CREATE TABLE t (n int)")
	require.Equal(t, "replica", show(t, db.Connect(t), "wal_level"))

	db.Exec(t, "ALTER SYSTEM SET wal_level = 'logical'")
	srv.Kill(t)
	_, err := pgx.Connect(t.Context(), db.URL)
	require.Error(t, err)
	srv.Start(t)
	require.Equal(t, "logical", show(t, db.Connect(t), "wal_level"), "ALTER SYSTEM takes effect")
	srv.Restart(t)
	db.Exec(t, "INSERT INTO t VALUES (1)")
}

func TestServerListensOnItsSocket(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, port, _ := strings.Cut(db.Server.Addr, ":")
	conn, err := pgx.Connect(t.Context(), fmt.Sprintf("host=%s port=%s user=postgres dbname=%s", db.Server.SocketDir, port, db.Name))
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// childVariable makes this test a binary of its own that announces its server and waits.
const childVariable = "PGRELAY_PGTEST_CHILD"

func TestKilledBinaryTakesItsServerWithIt(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		fmt.Printf("server=%s\n", pgtest.New(t).Server.SocketDir)
		select {}
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var dir string
	_, err = fmt.Fscanf(out, "server=%s\n", &dir)
	require.NoError(t, err)
	pid := postmasterPID(t, dir)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	pgtest.Eventually(t, time.Minute, func() error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("postmaster %d is there: %w", pid, err)
		}
		return nil
	}, "the postmaster follows its parent")
	require.NoError(t, os.RemoveAll(dir))
}

func TestServerThatIsNotTheOneAskedForFailsTheTest(t *testing.T) {
	t.Parallel()
	for variable, message := range map[string]string{
		"PGRELAY_TEST_PGVERSION=9":      "PGRELAY_TEST_PGVERSION asks for 9",
		"PGRELAY_TEST_PGBIN=/not/there": "/not/there/initdb: no such file",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerListensOnItsSocket$")
			cmd.Env = append(os.Environ(), variable)
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), message)
		})
	}
}

func TestEventuallyReportsTheLastErrorAtTheDeadline(t *testing.T) {
	t.Parallel()
	fake := &fatalRecorder{TB: t}
	asked := 0
	pgtest.Eventually(fake, 50*time.Millisecond, func() error { asked++; return errors.New("still three") }, "row %d arrives", 7)
	require.Equal(t, "row 7 arrives: not within 50ms: still three", fake.message)
	require.Greater(t, asked, 1)
}

// fatalRecorder keeps what Fatalf was called with.
type fatalRecorder struct {
	testing.TB
	message string
}

func (f *fatalRecorder) Fatalf(format string, args ...any) { f.message = fmt.Sprintf(format, args...) }

const startReplication = `START_REPLICATION SLOT held LOGICAL 0/0 (proto_version '1', publication_names 'p')`

func postmasterPID(t *testing.T, dir string) int {
	t.Helper()
	content, err := os.ReadFile(dir + "/data/postmaster.pid")
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	return pid
}

func show(t *testing.T, conn *pgx.Conn, setting string) string {
	t.Helper()
	var value string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW "+setting).Scan(&value))
	return value
}
