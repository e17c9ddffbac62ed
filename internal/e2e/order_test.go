package e2e_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

// TestOrderOfAKeySurvivesRefusalsLostRepliesAndAKill also shows that nothing is lost and,
// because SQS drops what it has seen, nothing is there twice.
func TestOrderOfAKeySurvivesRefusalsLostRepliesAndAKill(t *testing.T) {
	t.Parallel()
	const rows, keys = 1000, 7
	w := newWorld(t, sections{
		"poller":   "{interval: 100ms, sweep_interval: 500ms}",
		"relay":    "{retry: {max_attempts: 100, initial: 10ms, max: 50ms}}",
		"outboxes": `[{table: pgrelay.outbox_events, routes: [{kind: "*", to: fifo}]}]`,
	})
	var calls atomic.Int64
	killed := make(chan struct{})
	w.sqs.SetFault(func(r sqstest.Request) sqstest.Fault {
		if len(r.Entries) == 0 {
			return sqstest.Fault{}
		}
		if w.sqs.Count(fifoQueue) >= rows/2 {
			<-killed // on their way when the process dies, stored all the same
		}
		switch n := calls.Add(1); {
		case n%23 == 0:
			return sqstest.Fault{CutAfter: true}
		case n%5 == 0:
			return sqstest.Fault{Entries: map[string]sqstest.EntryFault{r.Entries[0].ID: {Code: "InternalError"}}}
		}
		return sqstest.Fault{}
	})
	insert := func(from, to int) {
		w.exec(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload)
			SELECT 'f', 'key' || n % $3, to_jsonb(n) FROM generate_series($1::int, $2) n`, from, to, keys)
	}
	insert(1, rows/2)
	p := w.start()
	for n := rows/2 + 1; n <= rows; n += 10 {
		insert(n, n+9)
	}
	w.arrive(fifoQueue, rows/2)
	p.kill()
	close(killed)
	require.Less(t, w.sqs.Count(fifoQueue), rows)
	p = w.start()
	w.arrive(fifoQueue, rows)
	w.settled(0)
	p.stop()
	requireOrder(t, w.sqs.Messages(fifoQueue))
	require.ElementsMatch(t, w.strings(`SELECT event_id::text FROM pgrelay.outbox_events`), eventIDs(w.sqs.Messages(fifoQueue)))
	require.Positive(t, w.sqs.Deduplicated(fifoQueue), "no lost reply has led to a repeat")
}

// requireOrder checks that the numbers that are the bodies rise within each group.
func requireOrder(t *testing.T, messages []sqstest.Message) {
	t.Helper()
	last := map[string]int{}
	for _, m := range messages {
		n, err := strconv.Atoi(m.Body)
		require.NoError(t, err)
		require.Greater(t, n, last[m.GroupID], m.GroupID)
		last[m.GroupID] = n
	}
}
