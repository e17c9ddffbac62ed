package poller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/proctest"
)

const thisInstance = "11111111-1111-1111-1111-111111111111"

// planned is a database with a table of what jobs did, and a scheduler over it.
type planned struct {
	t    *testing.T
	db   *pgtest.Database
	conn *pgx.Conn
	s    *Scheduler
	stop func()
	log  proctest.Buffer
}

// plan has jobs run in the lead of this instance, from the start or once they are switched on.
func plan(t *testing.T, on bool, jobs ...Job) *planned {
	t.Helper()
	p := &planned{t: t, db: pgtest.Migrated(t)}
	p.conn = p.db.Connect(t)
	p.exec(`CREATE TABLE did (what text, at timestamptz DEFAULT clock_timestamp(), xid xid8 DEFAULT pg_current_xact_id())`)
	p.exec(`INSERT INTO pgrelay.leader (instance, epoch) VALUES ($1, 1)`, thisInstance)
	base, err := pgx.ParseConfig(p.db.URL)
	require.NoError(t, err)
	p.s = NewScheduler(SchedulerConfig{Conn: base, Instance: thisInstance, Jobs: jobs, Enabled: on, Registerer: prometheus.NewRegistry(), Log: zerolog.New(&p.log)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.s.Run(ctx) }()
	p.stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-done) })
	t.Cleanup(p.stop)
	return p
}

func (p *planned) exec(sql string, args ...any) {
	p.t.Helper()
	_, err := p.conn.Exec(context.Background(), sql, args...)
	require.NoError(p.t, err)
}

func (p *planned) count(what string) int {
	p.t.Helper()
	var n int
	require.NoError(p.t, p.conn.QueryRow(context.Background(), `SELECT count(*) FROM did WHERE what = $1`, what).Scan(&n))
	return n
}

// does waits until something was done n times more.
func (p *planned) does(what string, n int) {
	p.t.Helper()
	n += p.count(what)
	pgtest.Eventually(p.t, patience, func() error {
		if got := p.count(what); got < n {
			return fmt.Errorf("%d of %d times", got, n)
		}
		return nil
	}, "%s is done", what)
}

func (p *planned) runs(job, result string) int {
	p.t.Helper()
	var m dto.Metric
	require.NoError(p.t, p.s.runs.WithLabelValues(job, result).Write(&m))
	return int(m.Counter.GetValue())
}

const often = 100 * time.Millisecond

func TestJobRunsAtEachTickInOneTransaction(t *testing.T) {
	t.Parallel()
	p := plan(t, true, Job{"two", often, `INSERT INTO did VALUES ('a'); INSERT INTO did VALUES ('b')`})
	p.does("b", 3)
	p.stop()
	var transactions int
	require.NoError(t, p.conn.QueryRow(t.Context(), `SELECT count(DISTINCT xid) FROM did`).Scan(&transactions))
	require.Equal(t, p.count("a"), transactions)
	require.Equal(t, p.count("b"), transactions)
	require.Equal(t, p.runs("two", jobDone), transactions)
	require.Zero(t, p.runs("two", jobFailed))
}

func TestJobThatFailsIsLoggedOnceAndStopsNobodyElse(t *testing.T) {
	t.Parallel()
	p := plan(t, true,
		Job{"bad", often, `INSERT INTO did VALUES ('never'); INSERT INTO done SELECT 'bad'`},
		Job{"commits", often, `INSERT INTO did VALUES ('early'); COMMIT`},
		Job{"good", often, `INSERT INTO did VALUES ('good')`})
	p.does("good", 3)
	pgtest.Eventually(t, patience, func() bool { return p.runs("bad", jobFailed) > 2 && p.runs("commits", jobFailed) > 2 }, "they are run again")
	require.Zero(t, p.count("never"), "what came before the error is rolled back")
	p.exec(`CREATE VIEW done AS SELECT what FROM did`)
	p.does("bad", 2)
	p.stop()
	lines := p.log.String()
	require.Equal(t, 1, strings.Count(lines, `relation \"done\" does not exist`), lines)
	require.Equal(t, 1, strings.Count(lines, "leave BEGIN, COMMIT and ROLLBACK out"), lines)
	require.Equal(t, 1, strings.Count(lines, "job works again"), lines)
	require.NotContains(t, lines, "early", "no statement is logged")
}

func TestJobNeverRunsBesideItself(t *testing.T) {
	t.Parallel()
	p := plan(t, true,
		Job{"slow", often, `INSERT INTO did SELECT 'begins'; SELECT FROM did WHERE what = 'gate' FOR UPDATE; INSERT INTO did VALUES ('slow')`},
		Job{"other", often, `INSERT INTO did VALUES ('other')`})
	p.exec(`INSERT INTO did VALUES ('gate')`)
	gate, err := p.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = gate.Exec(t.Context(), `SELECT FROM did WHERE what = 'gate' FOR UPDATE`)
	require.NoError(t, err)
	pgtest.Eventually(t, patience, func() bool {
		var waits bool
		require.NoError(t, p.conn.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'pgrelay job slow' AND wait_event_type = 'Lock'`).Scan(&waits))
		return waits
	}, "the job waits")
	p.does("other", 5)
	var sessions int
	require.NoError(t, p.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'pgrelay job slow'`).Scan(&sessions))
	require.Equal(t, 1, sessions)
	require.NoError(t, gate.Rollback(t.Context()))
	p.does("slow", 2)
}

func TestJobsCommitWaitsForTheDiskWhateverTheDatabaseSays(t *testing.T) {
	t.Parallel()
	p := plan(t, false, Job{"a", often, `INSERT INTO did SELECT current_setting('synchronous_commit')`})
	p.exec(`ALTER DATABASE ` + p.db.Name + ` SET synchronous_commit = off`)
	p.s.Enable(true)
	pgtest.Eventually(t, patience, func() bool { return p.count("off")+p.count("local") > 0 }, "the job has run")
	p.stop()
	require.Zero(t, p.count("off"))
}

func TestSwitchedOffNoJobRuns(t *testing.T) {
	t.Parallel()
	p := plan(t, false, Job{"a", often, `INSERT INTO did VALUES ('a')`})
	require.True(t, p.s.Enable(true))
	require.False(t, p.s.Enable(true))
	p.does("a", 2)
	require.True(t, p.s.Enable(false))
	p.stop()
	before := p.count("a")
	p.s.runs.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), 5*often)
	defer cancel()
	require.NoError(t, p.s.Run(ctx))
	require.Equal(t, before, p.count("a"))
	require.Zero(t, p.runs("a", jobDone)+p.runs("a", jobFailed))
}

func TestJobOfAnInstanceThatLeadsNoMoreDoesNothing(t *testing.T) {
	t.Parallel()
	p := plan(t, true, Job{"a", often, `INSERT INTO did VALUES ('a')`})
	p.does("a", 1)
	p.exec(`UPDATE pgrelay.leader SET instance = gen_random_uuid(), epoch = 2`)
	before := p.count("a")
	p.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pgrelay job a'`)
	pgtest.Eventually(t, patience, func() bool {
		var n int
		require.NoError(t, p.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'pgrelay job a' AND query ILIKE 'rollback'`).Scan(&n))
		return n == 1
	}, "a new session has asked who leads")
	require.LessOrEqual(t, p.count("a"), before+1, "one may have been under way")
}

func TestTicksStayOnTheirGridAndMissedOnesAreLeftOut(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]time.Duration{0: 5, 1: 5, 4999: 5, 5: 10, 12: 15, 300: 305} {
		if after < 1000 {
			after *= time.Second
		} else {
			after *= time.Millisecond
		}
		require.Equal(t, start.Add(want*time.Second), following(start, 5*time.Second, start.Add(after)), after)
	}
	require.Equal(t, start.Add(5*time.Second), following(start, 5*time.Second, start.Add(-time.Hour)), "a clock that goes back")
}
