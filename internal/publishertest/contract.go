package publishertest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/relay"
)

const (
	// ample never runs out in a test that works.
	ample = time.Minute
	// brief is the first deadline that a test waits for.
	brief = 50 * time.Nanosecond
)

// Run puts the publishers that start makes through the contract.
func Run(t *testing.T, start Start) {
	for name, test := range map[string]func(*testing.T, Start){
		"delivered means arrived byte for byte and in order": deliversAll,
		"later calls arrive after earlier ones":              keepsOrder,
		"concurrent calls deliver everything once":           deliversConcurrently,
		"what Check takes fits the limits":                   checksGood,
		"Check refuses a bad message without showing it":     checksBad,
		"an empty batch is no call":                          takesEmptyBatch,
		"a call before Open is a fault":                      faultsBeforeOpen,
		"a call after Close is a fault":                      faultsAfterClose,
		"it can be opened again":                             opensAgain,
		"a call whose context has ended sends nothing":       sendsNothingWhenEnded,
		"a call cut off by its context is unknown":           unknownWhenCanceled,
		"a call past its own deadline is unknown":            unknownWhenLate,
		"a broken destination charges no message":            blamesDestination,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start)
		})
	}
}

func opened(t *testing.T, start Start, timeout time.Duration) Harness {
	t.Helper()
	h := start(t, timeout)
	t.Cleanup(func() { _ = h.Publisher.Close() }) // one that hangs says so
	require.NoError(t, h.Publisher.Open(t.Context()))
	return h
}

// batchSize is a full call's, or enough of one.
func batchSize(p relay.Publisher) int { return min(p.Limits().Messages, len(awkward)+2) }

func requireDelivered(t *testing.T, p relay.Publisher, batch []*relay.Message) {
	t.Helper()
	results, fault := p.Publish(t.Context(), batch)
	require.Nil(t, fault)
	requireOutcomes(t, len(batch), results, relay.OutcomeDelivered)
}

func deliversAll(t *testing.T, start Start) {
	h := opened(t, start, ample)
	batch := h.messages(0, batchSize(h.Publisher))
	requireDelivered(t, h.Publisher, batch)
	received := h.Received()
	require.Len(t, received, len(batch))
	for i, m := range batch {
		require.Equal(t, asReceived(m), received[i])
	}
}

func keepsOrder(t *testing.T, start Start) {
	h := opened(t, start, ample)
	var want []string
	for i := range 20 {
		m := h.message(i)
		m.Group = "one"
		requireDelivered(t, h.Publisher, []*relay.Message{m})
		want = append(want, m.Body)
	}
	require.Equal(t, want, bodies(h.Received()))
}

func bodies(received []Received) []string {
	list := make([]string, len(received))
	for i, r := range received {
		list[i] = r.Body
	}
	return list
}

func deliversConcurrently(t *testing.T, start Start) {
	h := opened(t, start, ample)
	const senders, calls = 8, 10
	size := batchSize(h.Publisher)
	var want []string
	var wg sync.WaitGroup
	outcomes := make(chan []relay.Result, senders*calls)
	for s := range senders {
		var batches [][]*relay.Message
		for c := range calls {
			batch := h.messages((s*calls+c)*size, size)
			batches = append(batches, batch)
			for _, m := range batch {
				want = append(want, m.Body)
			}
		}
		wg.Go(func() {
			for _, batch := range batches {
				results, _ := h.Publisher.Publish(t.Context(), batch)
				outcomes <- results
			}
		})
	}
	wg.Wait()
	close(outcomes)
	for results := range outcomes {
		requireOutcomes(t, size, results, relay.OutcomeDelivered)
	}
	require.ElementsMatch(t, want, bodies(h.Received()))
}

func checksGood(t *testing.T, start Start) {
	h := opened(t, start, ample)
	limits := h.Publisher.Limits()
	require.Positive(t, limits.Messages)
	for _, m := range h.messages(0, len(awkward)) {
		require.NoError(t, h.Publisher.Check(m))
		require.GreaterOrEqual(t, h.Publisher.Size(m), len(m.Body))
		require.True(t, limits.Bytes == 0 || h.Publisher.Size(m) <= limits.Bytes)
	}
}

func checksBad(t *testing.T, start Start) {
	h := opened(t, start, ample)
	h.Bad.Body = secret + h.Bad.Body
	err := h.Publisher.Check(h.Bad)
	var r *relay.Rejection
	require.ErrorAs(t, err, &r)
	requireWords(t, r.Reason, r.Detail)
	require.Empty(t, h.Received())
}

func takesEmptyBatch(t *testing.T, start Start) {
	h := opened(t, start, ample)
	results, fault := h.Publisher.Publish(t.Context(), nil)
	require.Nil(t, fault)
	require.Empty(t, results)
	require.Empty(t, h.Received())
}

func faultsBeforeOpen(t *testing.T, start Start) {
	h := start(t, ample)
	requireNothingSent(t, h)
	require.NoError(t, h.Publisher.Close())
}

func faultsAfterClose(t *testing.T, start Start) {
	h := opened(t, start, ample)
	require.NoError(t, h.Publisher.Close())
	requireNothingSent(t, h)
}

func requireNothingSent(t *testing.T, h Harness) {
	t.Helper()
	batch := h.batch(3)
	results, fault := h.Publisher.Publish(t.Context(), batch)
	requireFault(t, fault)
	requireOutcomes(t, len(batch), results, relay.OutcomeBack)
	require.Empty(t, h.Received())
}

func opensAgain(t *testing.T, start Start) {
	h := opened(t, start, ample)
	require.NoError(t, h.Publisher.Open(t.Context()))
	requireDelivered(t, h.Publisher, h.messages(0, 1))
	require.NoError(t, h.Publisher.Close())
	require.NoError(t, h.Publisher.Open(t.Context()))
	requireDelivered(t, h.Publisher, h.messages(1, 1))
	require.Len(t, h.Received(), 2)
}

func sendsNothingWhenEnded(t *testing.T, start Start) {
	h := opened(t, start, ample)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	batch := h.batch(2)
	results, fault := h.Publisher.Publish(ctx, batch)
	require.Nil(t, fault)
	requireOutcomes(t, len(batch), results, relay.OutcomeBack)
	require.Empty(t, h.Received())
}

func unknownWhenCanceled(t *testing.T, start Start) {
	h := opened(t, start, 10*ample)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.Hang(cancel)
	began := time.Now()
	batch := h.batch(2)
	results, fault := h.Publisher.Publish(ctx, batch)
	require.Nil(t, fault)
	requireOutcomes(t, len(batch), results, relay.OutcomeUnknown)
	require.Less(t, time.Since(began), ample)
}

// unknownWhenLate gives more time where a call was over before it had been sent.
func unknownWhenLate(t *testing.T, start Start) {
	for deadline := brief; deadline < ample; deadline *= 4 {
		h := start(t, deadline)
		t.Cleanup(func() { _ = h.Publisher.Close() }) // one that hangs says so
		var hung atomic.Bool
		h.Hang(func() { hung.Store(true) })
		if h.Publisher.Open(t.Context()) != nil {
			continue
		}
		batch := h.batch(2)
		results, fault := h.Publisher.Publish(t.Context(), batch)
		if hung.Load() {
			require.Nil(t, fault)
			requireOutcomes(t, len(batch), results, relay.OutcomeUnknown)
			return
		}
	}
	require.FailNow(t, "no call was sent in time")
}

func blamesDestination(t *testing.T, start Start) {
	h := opened(t, start, ample)
	h.Break()
	batch := h.batch(3)
	results, fault := h.Publisher.Publish(t.Context(), batch)
	requireFault(t, fault)
	requireOutcomes(t, len(batch), results, relay.OutcomeBack, relay.OutcomeUnknown)
	require.Empty(t, h.Received())
}
