package sqs

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
	"pgrelay/relay"
)

// pastDedup is longer than the deduplication window.
const pastDedup = 6 * time.Minute

func TestALostReplyIsUnknownAndRepeatsOnAStandardQueueOnly(t *testing.T) {
	t.Parallel()
	for queue, want := range map[string]int{plainQueue: 6, fifoQueue: 3} {
		p, ts := start(t, queue)
		ts.SetFault(onSend(sqstest.Fault{CutAfter: true}))
		results, fault := publish(t, p, numbered(3))
		require.Nil(t, fault)
		require.Equal(t, all(3, relay.OutcomeUnknown, nil), outcomes(results))
		require.Equal(t, "reply_lost", results[0].Reason)
		require.Equal(t, 3, ts.Count(queue))

		ts.SetFault(nil)
		results, fault = publish(t, p, numbered(3))
		require.Nil(t, fault)
		require.Equal(t, all(3, relay.OutcomeDelivered, nil), outcomes(results))
		require.Equal(t, want, ts.Count(queue))
	}
}

func TestACutBeforeStoringIsUnknownToo(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	ts.SetFault(onSend(sqstest.Fault{CutBefore: true}))
	results, fault := publish(t, p, numbered(2))
	require.Nil(t, fault)
	require.Equal(t, all(2, relay.OutcomeUnknown, nil), outcomes(results))
	require.Equal(t, 1, ts.CallCount("SendMessageBatch"), "neither the SDK nor the transport sends again")
}

func TestAnAnswerAfterTheDeadlineIsUnknown(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	ts.SetFault(onSend(sqstest.Fault{Delay: time.Hour}))
	results, fault := late(t, p, func() []*relay.Message { return numbered(2) }, func() bool { return ts.Count(plainQueue) >= 2 })
	require.Nil(t, fault)
	require.Equal(t, all(2, relay.OutcomeUnknown, nil), outcomes(results))
	require.Equal(t, "timeout", results[0].Reason)
}

func TestAStormOf503sIsOneRequestACall(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	ts.SetFault(onSend(sqstest.Fault{Status: 503}))
	const calls = 40 // more than the SDK's retry quota lasts for
	for range calls {
		results, fault := publish(t, p, numbered(2))
		require.Equal(t, "server_error", fault.Reason)
		require.Equal(t, all(2, relay.OutcomeBack, nil), outcomes(results))
	}
	require.Equal(t, calls, ts.CallCount("SendMessageBatch"))
	ts.SetFault(nil)
	_, fault := publish(t, p, numbered(2))
	require.Nil(t, fault)
}

func TestAnEntryInNeitherListIsUnknown(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	ts.SetFault(onSend(sqstest.Fault{Entries: map[string]sqstest.EntryFault{"1": {Omit: true}}}))
	results, fault := publish(t, p, numbered(3))
	require.Nil(t, fault)
	require.Equal(t, all(3, relay.OutcomeDelivered, map[int]relay.Outcome{1: relay.OutcomeUnknown}), outcomes(results))
	require.Equal(t, "missing_from_reply", results[1].Reason)
}

func TestAWrongChecksumMakesItsOwnEntryUnknownOnly(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	ts.SetFault(onSend(sqstest.Fault{Entries: map[string]sqstest.EntryFault{"2": {WrongMD5: true}}}))
	results, fault := publish(t, p, numbered(3))
	require.Nil(t, fault)
	require.Equal(t, all(3, relay.OutcomeDelivered, map[int]relay.Outcome{2: relay.OutcomeUnknown}), outcomes(results))
	require.Equal(t, "checksum_mismatch", results[2].Reason)
}

// TestAPoisonRowOfEachKindDiesAlone sends what Check would have refused.
func TestAPoisonRowOfEachKindDiesAlone(t *testing.T) {
	t.Parallel()
	poisons := map[string]func(*relay.Message){
		"control character": func(m *relay.Message) { m.Body = "\x02" },
		"not a character":   func(m *relay.Message) { m.Body = "\uFFFF" },
		"empty body":        func(m *relay.Message) { m.Body = "" },
		"too large":         func(m *relay.Message) { m.Body = strings.Repeat("x", 2049) },
		"too many attrs":    func(m *relay.Message) { m.Attributes = attrs(11) },
		"attribute name":    func(m *relay.Message) { m.Attributes = []relay.Attribute{{Name: "AWS.x", Value: "v"}} },
		"attribute value":   func(m *relay.Message) { m.Attributes = []relay.Attribute{{Name: "a", Value: "\x01"}} },
		"no value":          func(m *relay.Message) { m.Attributes = []relay.Attribute{{Name: "a"}} },
		"group":             func(m *relay.Message) { m.Group = "a group" },
		"delay":             func(m *relay.Message) { m.Delay = time.Hour },
	}
	onlyFIFO := map[string]func(*relay.Message){
		"no group":    func(m *relay.Message) { m.Group = "" }, // refuses the whole request
		"no dedup id": func(m *relay.Message) { m.DedupID = "" },
		"dedup id":    func(m *relay.Message) { m.DedupID = strings.Repeat("d", 129) },
	}
	for _, queue := range []string{plainQueue, fifoQueue} {
		ts := sqstest.Start(t)
		ts.CreateQueue(queue, map[string]string{"MaximumMessageSize": "2048"})
		p := unopened(t, destination(ts.URL, queue))
		require.NoError(t, p.Open(t.Context()))
		die := func(name string, poison func(*relay.Message)) {
			ts.Advance(pastDedup)
			before := ts.Count(queue)
			batch := numbered(10)
			poison(batch[3])
			require.Error(t, p.Check(batch[3]), name)
			results, fault := publish(t, p, batch)
			require.Nil(t, fault, name)
			require.Equal(t, all(10, relay.OutcomeDelivered, map[int]relay.Outcome{3: relay.OutcomeRejected}), outcomes(results), name)
			require.Equal(t, 9, ts.Count(queue)-before, name)
		}
		for name, poison := range poisons {
			die(name, poison)
		}
		if queue == fifoQueue {
			for name, poison := range onlyFIFO {
				die(name, poison)
			}
		}
	}
}

func TestTheRowBehindARefusedRequestIsFoundByHalving(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"InvalidParameterValue", "MissingParameter", "InvalidMessageContents", "AWS.SimpleQueueService.BatchRequestTooLong"} {
		for _, queue := range []string{plainQueue, fifoQueue} {
			p, ts := start(t, queue)
			ts.SetFault(poisoned("body-d", sqstest.Fault{Code: code, Message: "Value body-d for parameter MessageGroupId"}))
			results, fault := publish(t, p, numbered(10))
			require.Nil(t, fault)
			require.Equal(t, all(10, relay.OutcomeDelivered, map[int]relay.Outcome{3: relay.OutcomeRejected}), outcomes(results), code)
			require.NotContains(t, results[3].Detail, "body-d")
			require.Equal(t, []string{"body-a", "body-b", "body-c", "body-e", "body-f", "body-g", "body-h", "body-i", "body-j"}, stored(ts, queue))
			require.LessOrEqual(t, ts.CallCount("SendMessageBatch"), 9)
		}
	}
}

func TestABatchThatIsTooMuchInSumIsSplitAndBlamesNobody(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	batch := numbered(11)
	batch[0].Body = strings.Repeat("x", 700<<10)
	batch[1].Body = strings.Repeat("y", 700<<10)
	results, fault := publish(t, p, batch)
	require.Nil(t, fault)
	require.Equal(t, all(11, relay.OutcomeDelivered, nil), outcomes(results))
	require.Equal(t, 11, ts.Count(plainQueue))
}

func TestAServerThatTakesNoBatchAtAllIsAtFault(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	for _, code := range []string{"TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.InvalidBatchEntryId", "EmptyBatchRequest", "BatchEntryIdsNotDistinct"} {
		ts.SetFault(onSend(sqstest.Fault{Code: code}))
		results, fault := publish(t, p, numbered(4))
		require.NotNil(t, fault, code)
		require.Equal(t, "refused_request", fault.Reason)
		require.Equal(t, all(4, relay.OutcomeBack, nil), outcomes(results))
	}
}

func TestAFaultWhileHalvingSparesTheRest(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	ts.SetFault(func(r sqstest.Request) sqstest.Fault {
		switch {
		case len(r.Entries) == 4:
			return sqstest.Fault{Code: "InvalidParameterValue"}
		case len(r.Entries) == 2 && r.Entries[0].Body == "body-a":
			return sqstest.Fault{Entries: map[string]sqstest.EntryFault{"1": {Code: "Throttling"}}}
		}
		return sqstest.Fault{}
	})
	results, fault := publish(t, p, numbered(4))
	require.True(t, fault.Throttled)
	require.Equal(t, all(4, relay.OutcomeBack, map[int]relay.Outcome{0: relay.OutcomeDelivered}), outcomes(results))
	require.Equal(t, []string{"body-a"}, stored(ts, plainQueue))
}

func TestHalvingEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	var halved atomic.Bool
	ts.SetFault(func(r sqstest.Request) sqstest.Fault {
		if len(r.Entries) == 4 {
			return sqstest.Fault{Code: "InvalidParameterValue"}
		}
		halved.Store(true)
		return sqstest.Fault{Delay: time.Hour}
	})
	results, fault := late(t, p, func() []*relay.Message { return numbered(4) }, halved.Load)
	require.Nil(t, fault)
	require.Equal(t, []relay.Outcome{relay.OutcomeUnknown, relay.OutcomeUnknown, relay.OutcomeBack, relay.OutcomeBack}, outcomes(results))
	require.Equal(t, "not_sent", results[3].Reason)
}

func TestADelayIsRoundedUpToSeconds(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	batch := numbered(3)
	batch[1].Delay = time.Millisecond
	batch[2].Delay = maxDelay
	_, fault := publish(t, p, batch)
	require.Nil(t, fault)
	for i, want := range []time.Duration{0, time.Second, maxDelay} {
		require.Equal(t, want, ts.Messages(plainQueue)[i].Delay)
	}
}

func TestAStandardQueueGetsAGroupOnlyIfThereIsOne(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	batch := numbered(2)
	batch[0].Group = ""
	results, fault := publish(t, p, batch)
	require.Nil(t, fault)
	require.Equal(t, all(2, relay.OutcomeDelivered, nil), outcomes(results))
	require.Empty(t, ts.Messages(plainQueue)[0].GroupID)
	require.Equal(t, "group-b", ts.Messages(plainQueue)[1].GroupID)
}

func TestACallerThatLeavesWhileHalvingGetsWhatIsKnown(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls atomic.Int32
	ts.SetFault(func(sqstest.Request) sqstest.Fault {
		if calls.Add(1) == 1 {
			return sqstest.Fault{Code: "InvalidParameterValue"}
		}
		cancel()
		return sqstest.Fault{Delay: time.Hour}
	})
	results, fault := p.Publish(ctx, numbered(2))
	require.Nil(t, fault)
	require.Equal(t, []relay.Outcome{relay.OutcomeUnknown, relay.OutcomeBack}, outcomes(results))
	require.Equal(t, "canceled", results[0].Reason)
}

func BenchmarkPublishTen(b *testing.B) {
	ts := sqstest.Start(b, sqstest.WithHistory(100))
	ts.CreateQueue(plainQueue, nil)
	p, err := New(b.Context(), destination(ts.URL, plainQueue), testKeys)
	require.NoError(b, err)
	require.NoError(b, p.Open(b.Context()))
	batch := numbered(10)
	for i, m := range batch {
		m.Body = strings.Repeat("x", 500)
		m.Attributes = []relay.Attribute{{Name: "event_id", Value: fmt.Sprint(i)}, {Name: "event_type", Value: "BOOKED"}}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, fault := p.Publish(b.Context(), batch); fault != nil {
			b.Fatal(fault)
		}
	}
	require.NoError(b, p.Close())
}
