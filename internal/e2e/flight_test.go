package e2e_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

// gate holds back the first call that has a message with a body.
type gate struct {
	body    string
	once    sync.Once
	reached chan struct{}
	open    chan struct{}
}

// holdBack sets a gate as the SQS's fault; it opens when the test ends, if not before.
func (w *world) holdBack(body string) *gate {
	w.t.Helper()
	g := &gate{body: body, reached: make(chan struct{}), open: make(chan struct{})}
	w.sqs.SetFault(g.hook)
	w.t.Cleanup(g.release)
	return g
}

func (g *gate) hook(r sqstest.Request) sqstest.Fault {
	if slices.ContainsFunc(r.Entries, func(e sqstest.Entry) bool { return e.Body == g.body }) {
		select {
		case <-g.reached:
		default:
			close(g.reached)
			<-g.open
		}
	}
	return sqstest.Fault{}
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// wait returns when the message is on its way.
func (g *gate) wait(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-ctx.Done():
		require.Fail(t, "nothing was sent")
	}
}

func TestRowTouchedInFlightIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ queue, kind, change, body string }{
		"changed":           {standardQueue, "q", `payload = '"new"'`, `"new"`},
		"changed, FIFO":     {fifoQueue, "f", `payload = '"new"'`, `"new"`},
		"armed again":       {standardQueue, "q", `published_at = NULL`, `"old"`},
		"armed again, FIFO": {fifoQueue, "f", `published_at = NULL`, `"old"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			w := newWorld(t, sections{"poller": slowPoller})
			held := w.holdBack(`"old"`)
			p := w.start()
			w.exec(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) VALUES ($1, 'k', '"old"')`, c.kind)
			held.wait(ctx, t)
			w.exec(`UPDATE pgrelay.outbox_events SET ` + c.change)
			held.release()
			messages := w.arrive(c.queue, 2)
			w.settled(0)
			p.stop()
			messages = append(messages[:0:0], w.sqs.Messages(c.queue)...)
			require.Equal(t, []string{`"old"`, c.body}, bodies(messages))
			require.Len(t, slices.Compact(eventIDs(messages)), 1)
			require.Equal(t, "0", w.string(`SELECT count(*)::text FROM pgrelay.failures`), "a change costs no attempt")
		})
	}
}

func TestRowLockedBySomebodyDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"standard queue": "q", "FIFO queue": "f"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			queue := standardQueue
			if kind == "f" {
				queue = fifoQueue
			}
			w := newWorld(t, nil)
			other, err := w.db.Connect(t).Begin(ctx)
			require.NoError(t, err)
			lock := func(id string) {
				_, err := other.Exec(ctx, `SELECT FROM pgrelay.outbox_events WHERE id = $1::bigint FOR UPDATE`, id)
				require.NoError(t, err)
			}
			// One row is locked before its claim, another one while its message is on its way.
			held := w.holdBack("30")
			ids := w.insert(kind, 50)
			lock(ids[6])
			p := w.start()
			held.wait(ctx, t)
			lock(ids[29])
			held.release()
			w.arrive(queue, 49)
			w.settledBut(ids[6], ids[29])
			require.NoError(t, other.Rollback(ctx))
			w.arrive(queue, 50)
			w.settled(0)
			p.stop()
			require.ElementsMatch(t, w.strings(`SELECT event_id::text FROM pgrelay.outbox_events`), eventIDs(w.sqs.Messages(queue)))
		})
	}
}

// settledBut waits until all rows are stamped but these.
func (w *world) settledBut(ids ...string) {
	w.t.Helper()
	w.eventually(strings.Join(ids, " "), `SELECT coalesce(string_agg(id::text, ' ' ORDER BY id), '')
		FROM pgrelay.outbox_events WHERE published_at IS NULL`)
}
