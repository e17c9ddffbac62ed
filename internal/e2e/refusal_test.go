package e2e_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

// refusals refuse the messages with a body, for a reason that is not the sender's, and
// remember when, and in calls of how many.
type refusals struct {
	body  string
	mu    sync.Mutex
	times []time.Time
	sizes []int
	over  bool
}

func (r *refusals) hook(request sqstest.Request) sqstest.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(request.Entries, func(e sqstest.Entry) bool { return e.Body == r.body })
	if at < 0 || r.over {
		return sqstest.Fault{}
	}
	r.times = append(r.times, time.Now())
	r.sizes = append(r.sizes, len(request.Entries))
	refused := sqstest.EntryFault{Code: "InternalError", Message: "We encountered an internal error."}
	return sqstest.Fault{Entries: map[string]sqstest.EntryFault{request.Entries[at].ID: refused}}
}

func (r *refusals) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

func TestRefusedEntryRetriesAloneDiesAndComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{
		"poller": slowPoller,
		"relay":  "{retry: {max_attempts: 3, initial: 200ms, max: 10s, multiplier: 2, jitter: 0.2}}",
	})
	refused := &refusals{body: "7"}
	w.sqs.SetFault(refused.hook)
	w.insert("q", 10)
	p := w.start()
	w.arrive(standardQueue, 9)
	w.eventually("9", `SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NOT NULL`)
	w.eventually("DEAD, 3 attempts", `SELECT status || ', ' || attempts || ' attempts' FROM pgrelay.outbox_event_status WHERE payload = '7'`)

	refused.end()
	require.Len(t, refused.times, 3)
	require.Equal(t, 10, refused.sizes[0], "one call had all ten")
	require.GreaterOrEqual(t, refused.times[1].Sub(refused.times[0]), 160*time.Millisecond)
	require.GreaterOrEqual(t, refused.times[2].Sub(refused.times[1]), 320*time.Millisecond)
	require.Len(t, w.sqs.Messages(standardQueue), 9)
	require.Contains(t, w.done("dead", "list"), "refused_for_now")

	require.Contains(t, w.done("dead", "retry", "--table", "pgrelay.outbox_events", "--all", "--reason", "refused_for_now"), "1 dead letter(s)")
	require.Equal(t, "7", w.arrive(standardQueue, 10)[9].Body)
	w.settled(0)
	require.Equal(t, "no dead letters", strings.TrimSpace(w.done("dead", "list")))
	p.stop()
	require.Len(t, w.sqs.Messages(standardQueue), 10)
}
