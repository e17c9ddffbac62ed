package e2e_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/sqstest"
)

// held keeps every send waiting at the server until release is called.
type held struct {
	calls    atomic.Int64
	rows     atomic.Int64
	answered chan struct{}
}

func holdCalls(t *testing.T, sqs *sqstest.Server) *held {
	h := &held{answered: make(chan struct{})}
	sqs.SetFault(func(r sqstest.Request) sqstest.Fault {
		if r.Action == "SendMessageBatch" {
			h.rows.Add(int64(len(r.Entries)))
			h.calls.Add(1)
			<-h.answered
		}
		return sqstest.Fault{}
	})
	t.Cleanup(h.release)
	return h
}

func (h *held) release() {
	select {
	case <-h.answered:
	default:
		close(h.answered)
	}
}

// await waits for the first call.
func (h *held) await(w *world) {
	w.t.Helper()
	pgtest.Eventually(w.t, patience, func() bool { return h.calls.Load() > 0 }, "a call is on its way")
}

// moreWait waits until rows are claimed behind those of the first call.
func (h *held) moreWait(w *world) {
	w.t.Helper()
	w.eventually("true", `SELECT (coalesce(sum(cardinality(ids)), 0) > $1)::text FROM pgrelay.claims`, h.rows.Load())
}

func TestSIGTERMStampsWhatIsInFlightGivesTheRestBackAndClaimsNothingMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.configure(sections{
		"poller":       slowPoller,
		"relay":        "{shutdown_timeout: 10m}", // the test says when the calls end
		"destinations": "{fifo: " + w.queue(fifoQueue) + ", queue: " + w.queue(standardQueue, "concurrency: 1") + "}",
	})
	p := w.start()
	p.says("replication stream started")
	calls := holdCalls(t, w.sqs.Server)
	before := w.insert("q", 100)
	calls.await(w)
	calls.moreWait(w)
	p.signal(syscall.SIGTERM)
	onTheWire := fmt.Sprint(calls.rows.Load())
	w.eventually(onTheWire, `SELECT coalesce(sum(cardinality(ids)), 0) FROM pgrelay.claims`)
	after := w.insert("q", 50)
	calls.release()
	require.Zero(t, p.wait())
	require.NotEmpty(t, p.logged("drained"))
	require.Equal(t, onTheWire, fmt.Sprint(w.sqs.Count(standardQueue)))
	require.Equal(t, onTheWire+" published, 0 claims, 0 failures", w.string(`SELECT count(*) || ' published, ' ||
		(SELECT count(*) FROM pgrelay.claims) || ' claims, ' || (SELECT count(*) FROM pgrelay.failures) || ' failures'
		FROM pgrelay.outbox_events WHERE published_at IS NOT NULL`))
	w.sqs.SetFault(nil)

	// The slot brings none of the rows again that it brought.
	require.LessOrEqual(t, len(w.strings(`SELECT data::text FROM pg_logical_slot_peek_binary_changes('pgrelay_' || current_database(), NULL, NULL,
		'proto_version', '1', 'publication_names', 'pgrelay') WHERE get_byte(data, 0) = ascii('I')`)), len(after))

	next := w.start()
	w.settled(0)
	next.stop()
	require.Len(t, w.sqs.Messages(standardQueue), len(before)+len(after))
}

// drainIn is shutdown_timeout in tests of a drain that can't end well.
const drainIn = 4 * time.Second

// drains that meet somebody who is gone.
var drains = []struct {
	name   string
	broken func(w *world, px *proxy, calls *held)
	left   bool // rows in flight stay claimed
}{
	{"PostgreSQL is gone", func(_ *world, px *proxy, calls *held) { px.cut(); calls.release() }, true},
	{"PostgreSQL is frozen", func(_ *world, px *proxy, calls *held) { px.freeze(); calls.release() }, true},
	{"SQS hangs", func(*world, *proxy, *held) {}, false},
	{"SQS refuses", func(w *world, _ *proxy, calls *held) {
		w.sqs.SetFault(func(sqstest.Request) sqstest.Fault { return sqstest.Fault{CutBefore: true} })
		calls.release()
	}, false},
	{"PostgreSQL is gone and SQS hangs", func(_ *world, px *proxy, _ *held) { px.cut() }, true},
	{"PostgreSQL is frozen and SQS hangs", func(_ *world, px *proxy, _ *held) { px.freeze() }, true},
}

func TestSIGTERMExitsZeroInTimeWhoeverIsGone(t *testing.T) {
	t.Parallel()
	for _, d := range drains {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sections{"poller": slowPoller, "relay": fmt.Sprintf("{shutdown_timeout: %s}", drainIn)})
			px := newProxy(t, w.db.URL)
			calls := holdCalls(t, w.sqs.Server)
			w.insert("q", 30)
			p := w.launch([]string{px.env()}, "run")
			calls.await(w)
			claimed := w.strings(`SELECT unnest(ids) FROM pgrelay.claims`)
			d.broken(w, px, calls)
			began := time.Now()
			require.Zero(t, p.terminate())
			require.Less(t, time.Since(began), drainIn+patience, "patience is for a busy machine")
			px.cut()
			require.Equal(t, d.left, len(w.left()) > 0, "rows are left in flight")
			require.Equal(t, "0", w.string(`SELECT coalesce(max(attempts + crashes), 0) FROM pgrelay.failures`))

			calls.release()
			w.sqs.SetFault(nil)
			next := w.start()
			w.settled(0)
			next.stop()
			require.Subset(t, claimed, w.repeats(standardQueue))
		})
	}
}

func TestSecondSignalQuitsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"relay": "{shutdown_timeout: 1m}"})
	calls := holdCalls(t, w.sqs.Server)
	w.insert("q", 10)
	p := w.start()
	calls.await(w)
	pgtest.Eventually(t, patience, func() bool {
		p.signal(syscall.SIGTERM) // two at the same moment would be one
		return !p.running()
	}, "the second signal ends the process")
	require.Equal(t, -1, p.wait(), "killed by the signal")
}
