package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/sqstest"
)

// load is a producer that goes on writing rows, one transaction each, over whatever happens to the server.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// produce writes about two hundred rows a second until stop.
func (w *world) produce() *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel}
	l.done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var conn *pgx.Conn
		for ctx.Err() == nil {
			<-tick.C
			if conn == nil || conn.IsClosed() {
				conn, _ = pgx.Connect(ctx, w.db.URL)
				continue
			}
			// What failed is not in the table, and the table is what arrivals are compared with. It is not cut off: the server could
			// commit it when everything has been counted.
			_, _ = conn.Exec(context.WithoutCancel(ctx), `INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', '0')`)
		}
		if conn != nil {
			_ = conn.Close(context.Background())
		}
	})
	w.t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.cancel()
	l.done.Wait()
}

// flows waits until more rows have arrived than by now.
func (w *world) flows() {
	w.t.Helper()
	w.reach(standardQueue, w.sqs.Count(standardQueue)+20)
}

// standBy starts a second instance.
func (w *world) standBy(env ...string) *process {
	w.t.Helper()
	p := w.launch(env, "run")
	p.says("another instance leads; standing by")
	return p
}

// takesOver waits until an instance leads.
func (p *process) takesOver() {
	p.w.t.Helper()
	began := time.Now()
	pgtest.Eventually(p.w.t, patience, func() bool { return len(p.logged("leading")) > 0 }, "%s takes over", p.name)
	p.w.took("the lead is taken over", began)
}

// took says how long a recovery took, for docs/reliability.md.
func (w *world) took(what string, since time.Time) {
	w.t.Helper()
	w.t.Logf("%s after %.1f s", what, time.Since(since).Seconds())
}

func TestStandbySaysSoAndTakesOver(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name   string
		signal syscall.Signal
	}{
		{"after SIGTERM", syscall.SIGTERM},
		{"after kill -9", syscall.SIGKILL},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sections{"poller": slowPoller})
			first := w.start()
			second := w.standBy()
			for p, want := range map[*process]string{first: "leading", second: "standing by"} {
				status, text := p.get("/readyz")
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, want, strings.TrimSpace(text))
			}
			before := w.insert("q", 100)
			w.settled(0)
			// It asks again and again: a session that waited for the lock would hold back the vacuum of everybody.
			require.Equal(t, "0", w.string(`SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`))
			l := w.produce()
			w.flows()
			first.signal(end.signal)
			first.wait()
			second.takesOver()
			w.flows()
			l.stop()
			w.settled(0)
			second.stop()
			repeats := w.repeats(standardQueue)
			if end.signal == syscall.SIGTERM {
				require.Empty(t, repeats)
			}
			w.disjoint(before, repeats)
		})
	}
}

// disjoint requires that no row that was settled before a fault has been repeated.
func (w *world) disjoint(settled, repeats []string) {
	w.t.Helper()
	for _, id := range repeats {
		require.NotContains(w.t, settled, id, "a row that had its stamp is repeated")
	}
}

func TestLeaderThatIsFrozenOrCutOffIsReplacedAndSendsNothingOfWhatItHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		harm, mend func(first *process, px *proxy)
	}{
		{"frozen", func(first *process, _ *proxy) { first.signal(syscall.SIGSTOP) }, func(first *process, _ *proxy) { first.signal(syscall.SIGCONT) }},
		{"cut off", func(_ *process, px *proxy) { px.lose(toServer | toClient) }, func(*process, *proxy) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			// Each instance has an SQS of its own, so that it is seen who sends.
			w.configure(sections{
				"poller": slowPoller,
				"destinations": "{fifo: " + w.queue(fifoQueue) +
					", queue: {type: sqs, queue: " + standardQueue + ", endpoint: '${SQS}', concurrency: 1, timeout: 10m}}",
			})
			own := sqstest.Start(t)
			own.CreateQueue(standardQueue, nil)
			px := newProxy(t, w.db.URL)
			first := w.start(px.env(), "SQS="+own.URL)
			second := w.standBy("SQS=" + w.sqs.URL)
			calls := holdCalls(t, own.Server)
			w.insert("q", 50)
			calls.await(w)
			calls.moreWait(w)

			c.harm(first, px)
			second.takesOver()
			w.arrive(standardQueue, 50)
			c.mend(first, px)
			calls.release()
			first.says("lost the lead; standing by")
			px.restore()
			pgtest.Eventually(t, patience, func() error {
				if _, text := first.get("/readyz"); strings.TrimSpace(text) != "standing by" {
					return fmt.Errorf("%s", text)
				}
				return nil
			}, "it stands by")
			w.insert("q", 50)
			w.settled(0)
			require.EqualValues(t, 1, calls.calls.Load(), "it sent something after the other led")
			px.cut() // what it has left half-open
			px.restore()
			require.Zero(t, first.terminate())
			second.stop()
			require.Empty(t, w.repeats(standardQueue))
		})
	}
}

func TestSessionThatIsEndedComesBackAndNothingIsLostOrRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": "{interval: 200ms, sweep_interval: 1s}"})
	p := w.start()
	p.says("replication stream started")
	l := w.produce()
	// The sampler comes every 15 s: the next one is not waited for.
	sessions := []string{"sampler", "leader", "stamp", "poller", "stream", "leader", "stamp"}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(sessions), func(i, j int) { sessions[i], sessions[j] = sessions[j], sessions[i] })
	for _, session := range sessions {
		w.flows()
		application := "pgrelay " + session
		const pids = `SELECT coalesce(string_agg(pid::text, ' ' ORDER BY pid), '') FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`
		var before string
		pgtest.Eventually(t, patience, func() bool { before = w.string(pids, application); return before != "" }, "there is a %s", session)
		w.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, application)
		pgtest.Eventually(t, patience, func() bool {
			now := w.string(pids, application)
			return now != before && (now != "" || session == "sampler")
		}, "a new %s", session)
		if session == "leader" {
			pgtest.Eventually(t, patience, func() bool { _, text := p.get("/readyz"); return strings.TrimSpace(text) == "leading" }, "it leads again")
		}
	}
	w.flows()
	l.stop()
	w.settled(0)
	p.stop()
	require.Empty(t, w.repeats(standardQueue))
}
