package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/sqstest"
)

// unasked keeps the server from asking for a report of the stream: those that come are the relay's own. It comes before the start.
func (w *world) unasked() {
	w.t.Helper()
	w.exec(fmt.Sprintf(`ALTER DATABASE %s SET wal_sender_timeout = 0`, w.db.Name))
}

// follows waits until the slot has confirmed everything that was written up to now.
func (w *world) follows() {
	w.t.Helper()
	lsn := w.string(`SELECT pg_current_wal_lsn()::text`)
	pgtest.Eventually(w.t, patience, func() error {
		behind := w.string(`SELECT ($1::text::pg_lsn - confirmed_flush_lsn)::text FROM pg_replication_slots WHERE `+ownSlot, lsn)
		if !strings.HasPrefix(behind, "-") && behind != "0" {
			return fmt.Errorf("%s bytes behind", behind)
		}
		return nil
	}, "the slot follows")
}

func TestSlotFollowsWhileTheOutboxIsIdleAndOthersAreBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": slowPoller})
	w.unasked()
	p := w.start()
	p.says("replication stream started")
	neighbour := pgtest.New(t)
	const busy = `CREATE TABLE IF NOT EXISTS busy (n int, text text); INSERT INTO busy SELECT n, repeat('x', 500) FROM generate_series(1, 2000) n`
	for range 2 {
		w.db.Exec(t, busy)
		w.follows()
		neighbour.Exec(t, busy)
		w.follows()
	}
	p.stop()
}

// outages of the standard queue. down makes it unusable at an address; the returned function mends it.
var outages = []struct {
	name string
	down func(w *world) (destination string, mend func())
}{
	{"503 without a body", faulty(sqstest.Fault{Status: http.StatusServiceUnavailable})},
	{"throttled", faulty(sqstest.Fault{Code: "RequestThrottled"})},
	{"key management throttled", faulty(sqstest.Fault{Code: "KmsThrottled"})},
	{"access denied", faulty(sqstest.Fault{Code: "AccessDenied", Status: http.StatusForbidden})},
	{"connections cut", faulty(sqstest.Fault{CutBefore: true})},
	{"connections refused", func(w *world) (string, func()) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w.t, err)
		address := listener.Addr().String()
		require.NoError(w.t, listener.Close())
		return fmt.Sprintf("{type: sqs, queue: %s, endpoint: 'http://%s', timeout: 30s, pause: {initial: 20ms, max: 200ms}}", standardQueue, address), func() {
			listener, err := net.Listen("tcp", address)
			require.NoError(w.t, err)
			server := &http.Server{Handler: w.sqs, ReadHeaderTimeout: patience}
			served := make(chan error, 1)
			go func() { served <- server.Serve(listener) }()
			w.t.Cleanup(func() {
				_ = server.Close()
				require.ErrorIs(w.t, <-served, http.ErrServerClosed)
			})
		}
	}},
	{"queue missing", func(w *world) (string, func()) {
		w.sqs.DeleteQueue(standardQueue)
		return w.queue(standardQueue), func() { w.sqs.CreateQueue(standardQueue, nil) }
	}},
}

// faulty is an outage in which every request to the queue meets a fault.
func faulty(fault sqstest.Fault) func(w *world) (string, func()) {
	return func(w *world) (string, func()) {
		w.sqs.SetFault(func(r sqstest.Request) sqstest.Fault {
			if r.Queue == standardQueue {
				return fault
			}
			return sqstest.Fault{}
		})
		return w.queue(standardQueue), func() { w.sqs.SetFault(nil) }
	}
}

func TestOutageChargesNoRowHoldsNoWALAndEndsWithoutDuplicates(t *testing.T) {
	t.Parallel()
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.unasked()
			destination, mend := o.down(w)
			w.configure(sections{
				"relay":        "{retry: {max_attempts: 2, initial: 10ms, max: 20ms}}",
				"destinations": "{fifo: " + w.queue(fifoQueue) + ", queue: " + destination + "}",
			})
			const waiting = 2000
			w.insert("q", waiting/2)
			p := w.launch(nil, "run")
			p.says("replication stream started")
			pgtest.Eventually(t, patience, func() bool {
				return len(p.logged("destination paused"))+len(p.logged("destination starts paused")) > 0
			}, "the destination is paused")
			w.insert("q", waiting/2)
			// Another destination is not concerned.
			w.insert("f", 10)
			w.arrive(fifoQueue, 10)
			w.follows()
			require.Equal(t, "0 attempts, 0 dead", w.string(`SELECT coalesce(max(attempts), 0) || ' attempts, ' || count(dead_at) || ' dead' FROM pgrelay.failures`))
			require.Empty(t, w.sqs.Messages(standardQueue))

			mend()
			w.settled(0)
			p.stop()
			require.Len(t, w.sqs.Messages(standardQueue), waiting)
			require.Equal(t, fmt.Sprint(waiting+10), w.string(`SELECT count(*) FROM pgrelay.outbox_events WHERE dead_at IS NULL`))
		})
	}
}

func TestOutageUnderLoadRepeatsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"relay": "{retry: {max_attempts: 2, initial: 10ms, max: 20ms}}"})
	p := w.start()
	l := w.produce()
	for _, fault := range []sqstest.Fault{{Status: http.StatusServiceUnavailable}, {Code: "RequestThrottled"}, {CutBefore: true}} {
		w.flows()
		_, mend := faulty(fault)(w)
		before := len(p.logged("destination paused"))
		pgtest.Eventually(t, patience, func() bool { return len(p.logged("destination paused")) > before }, "the destination is paused")
		mend()
	}
	w.flows()
	l.stop()
	w.settled(0)
	p.stop()
	require.Empty(t, w.repeats(standardQueue))
	require.Equal(t, "0", w.string(`SELECT count(*) FROM pgrelay.outbox_events WHERE dead_at IS NOT NULL`))
}
