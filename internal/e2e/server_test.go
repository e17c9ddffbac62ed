package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestPostgreSQLThatRestartsOrCrashesUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{})
	w := newWorldOn(t, server.NewMigrated(t), nil)
	p := w.stream()
	before := w.insert("q", 100)
	w.settled(0)
	stamped := w.string(`SELECT pg_current_wal_insert_lsn()::text`)
	l := w.produce()
	w.eventually("true", `SELECT (pg_current_wal_flush_lsn() >= $1::text::pg_lsn)::text`, stamped)
	for _, fault := range []func(){
		func() { server.Kill(t); server.Start(t) },
		func() { server.Stop(t, pgtest.StopMode(syscall.SIGKILL)); awaitOrphans(t, server); server.Start(t) },
		func() { server.Restart(t) },
		func() { server.KillBackend(t, "pgrelay stamp") },
	} {
		w.flows()
		fault()
		w.flows()
	}
	l.stop()
	w.conn = w.db.Connect(t)
	w.settled(0)
	p.stop()
	w.disjoint(before, w.repeats(standardQueue))
}

// awaitOrphans waits until the children of a postmaster that was killed have noticed: they hold its memory.
func awaitOrphans(t *testing.T, server *pgtest.Server) {
	t.Helper()
	pgtest.Eventually(t, patience, func() error {
		dirs, err := filepath.Glob("/proc/[0-9]*/cwd")
		for _, dir := range dirs {
			if at, _ := os.Readlink(dir); at == server.SocketDir+"/data" {
				return fmt.Errorf("%s is left", dir)
			}
		}
		return err
	}, "the postmaster's children end")
}

func TestAbsentSynchronousStandbyHoldsNothingUpAndNoRowIsLostBeforeItIsVisible(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{})
	w := newWorldOn(t, server.NewMigrated(t), sections{"poller": slowPoller})
	w.exec(`SET synchronous_commit = local`)
	w.exec(`ALTER SYSTEM SET synchronous_standby_names = 'absent'`)
	w.exec(`SELECT pg_reload_conf()`)
	p := w.stream()
	w.insert("q", 20)
	w.settled(0)

	// The writer waits for the standby; its row is in the stream before anybody sees it.
	writer := w.db.Connect(t)
	committed := make(chan error, 1)
	go func() {
		_, err := writer.Exec(t.Context(), `INSERT INTO pgrelay.outbox_events (event_type, payload) SELECT 'q', to_jsonb(n) FROM generate_series(21, 40) n`)
		committed <- err
	}()
	w.eventually("1", `SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	pgtest.Eventually(t, patience, func() bool { return p.gauges("pgrelay_stream_rows_total")[""] == 40 }, "the stream brings the rows")
	w.insert("q", 1)
	w.arrive(standardQueue, 21)
	require.Equal(t, "21", w.string(`SELECT count(*)::text FROM pgrelay.outbox_events`), "they can't be seen")
	w.exec(`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	require.NoError(t, <-committed, "it is committed here all the same")
	w.arrive(standardQueue, 41)
	w.settled(0)

	// Neither a new lead nor a command nor a drain waits for the standby.
	w.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgrelay leader'`)
	pgtest.Eventually(t, patience, func() bool { return len(p.logged("leading")) == 2 }, "it leads again")
	w.insert("q", 1)
	w.done("republish", "--table", "pgrelay.outbox_events", "--id", "1")
	w.arrive(standardQueue, 43)
	w.settled(0)
	p.stop()
	require.Equal(t, []string{"1"}, w.repeats(standardQueue))
}

func TestServerThatStopsSmartlyWaitsForTheRelayAsForAnyClient(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{"wal_sender_timeout": "0"}})
	w := newWorldOn(t, server.NewMigrated(t), sections{"poller": slowPoller})
	p := w.stream()
	w.insert("q", 20)
	w.settled(0)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.Stop(t, pgtest.Smart)
	}()
	pgtest.Eventually(t, patience, func() error {
		conn, err := pgx.Connect(t.Context(), w.db.URL)
		if err == nil {
			return errors.Join(errors.New("it takes connections"), conn.Close(t.Context()))
		}
		if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || refused.Code != "57P03" {
			return err
		}
		return nil
	}, "the server takes nobody in any more")
	w.insert("q", 20)
	w.settled(0)
	require.Zero(t, p.terminate())
	require.NoError(t, w.conn.Close(t.Context()))
	<-stopped
	require.Len(t, w.sqs.Messages(standardQueue), 40)
}

func TestSlowQueueAndShortTimeoutOfTheWalsenderCutNoStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.configure(sections{"poller": slowPoller, "relay": "{batch_size: 10}", "destinations": "{fifo: " + w.queue(fifoQueue) + ", queue: " + w.queue(standardQueue, "concurrency: 1") + "}"})
	w.exec(fmt.Sprintf(`ALTER DATABASE %s SET wal_sender_timeout = '10s'`, w.db.Name))
	slow := holdCalls(t, w.sqs.Server)
	p := w.stream()
	started := w.string(`SELECT clock_timestamp()::text`)
	n := 0
	// So few that they can be sent one call after the other.
	for w.string(`SELECT (clock_timestamp() > $1::text::timestamptz + interval '25 s')::text FROM pg_sleep(0.2)`, started) == "false" {
		w.insert("q", 10)
		n += 10
	}
	pgtest.Eventually(t, patience, func() bool { return p.gauges("pgrelay_stream_rows_total")[""] == float64(n) }, "the stream brings the rows")
	w.follows()
	slow.release()
	w.settled(0)
	require.Zero(t, p.gauges("pgrelay_stream_reconnects_total")[""])
	require.Len(t, p.logged("replication stream started"), 1)
	p.stop()
	require.Empty(t, w.repeats(standardQueue))
}

func TestConnectionsExhaustedAtTheStartOrLaterAreWaitedFor(t *testing.T) {
	t.Parallel()
	const out = "PostgreSQL is out of reach; trying again"
	p := newPatient(t, pgtest.Migrated(t))
	const none, enough = `ALTER ROLE $role CONNECTION LIMIT 0`, `ALTER ROLE $role CONNECTION LIMIT -1`
	end := func(sessions string) {
		p.harm(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '$role' AND application_name LIKE '` + sessions + `'`)
	}
	p.harm(none)
	run := p.start()
	p.names(run, out, "too many connections for role", "end sessions that nobody needs")
	p.harm(enough)
	run.says("replication stream started")
	p.relays()
	p.settled(0)

	// refused waits until the lead, or a session, says once more that it waits.
	refused := func(session any, harm func()) {
		said := func() (n int) {
			for _, e := range run.logged(out) {
				if e["session"] == session && strings.Contains(fmt.Sprint(e["error"]), "too many connections for role") {
					n++
				}
			}
			return n
		}
		before := said()
		harm()
		pgtest.Eventually(t, patience, func() bool { return said() > before }, "%v says that it waits", session)
	}
	p.harm(none)
	refused(nil, func() { end("%") })
	p.insert("q", 50)
	p.harm(enough)
	p.settled(0)

	// The leader is in and the stamp is not: what can't be stamped isn't sent.
	p.relays()
	p.settled(0)
	p.harm(none)
	refused("stamp", func() { end("pgrelay stamp"); p.insert("q", 1) })
	before := p.sqs.Count(standardQueue)
	streamed := run.gauges("pgrelay_stream_rows_total")[""]
	p.insert("q", 50)
	pgtest.Eventually(t, patience, func() bool { return run.gauges("pgrelay_stream_rows_total")[""] == streamed+50 }, "the stream brings them")
	const seen = `SELECT (seen_at > $1::text::timestamptz + interval '2 s')::text FROM pgrelay.leader`
	p.eventually("true", seen, p.string(`SELECT seen_at::text FROM pgrelay.leader`)) // the leader has had its turn
	require.Equal(t, before, p.sqs.Count(standardQueue))
	p.harm(enough)
	p.settled(0)
	run.stop()
	require.Empty(t, p.repeats(standardQueue))
}
