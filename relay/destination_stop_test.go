package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnAbortGivesBackWhatWasNotSentUntilResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Second)}, nil)
		s.enqueue([]*delivery{row("a1", "a"), row("a2", "a"), row("b1", "b")})
		synctest.Wait()
		s.enqueue(rows(0, 2))
		s.abort()
		require.Equal(t, map[string]verdictKind{"a2": verdictBack, "0": verdictBack, "1": verdictBack}, s.kinds(t))
		require.Zero(t, s.room())

		s.enqueue(rows(2, 1))
		require.Equal(t, verdictBack, s.kind(t, "2"))
		pass(time.Second)
		require.Equal(t, verdictDelivered, s.kind(t, "a1"), "what was on the wire keeps its outcome")
		require.Equal(t, verdictDelivered, s.kind(t, "b1"))

		opens := s.opens.Load()
		s.resume()
		require.NotZero(t, s.room())
		require.Equal(t, opens+1, s.opens.Load())
		s.enqueue([]*delivery{row("a3", "a")})
		pass(time.Second)
		require.Equal(t, verdictDelivered, s.kind(t, "a3"))
		require.Len(t, s.pub.sent(), 2)
	})
}

func TestAResumedLineStillWaitsForItsRowOnTheWire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Second)}, nil)
		s.warm()
		s.enqueue([]*delivery{row("a1", "a"), row("a2", "a")})
		synctest.Wait()
		s.abort()
		s.resume()
		s.enqueue([]*delivery{row("a3", "a")})
		pass(999 * time.Millisecond)
		require.Equal(t, [][]string{{"a1"}}, s.pub.sent())
		pass(time.Millisecond)
		require.Equal(t, [][]string{{"a1"}, {"a3"}}, s.pub.sent())
	})
}

func TestNothingIsSentWhenTheLeadIsNotFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{}, nil)
		s.fresh.Store(false)
		s.enqueue([]*delivery{row("a1", "a"), row("a2", "a"), row("x", "")})
		require.Equal(t, map[string]verdictKind{"a1": verdictBack, "a2": verdictBack, "x": verdictBack}, s.kinds(t))
		require.Empty(t, s.pub.sent())
		require.False(t, s.state().paused, "that is not the destination's fault")
		require.Zero(t, s.measured(t)["pgrelay_batch_messages_count bookings"])

		s.fresh.Store(true)
		s.enqueue(rows(0, 1))
		require.Equal(t, verdictDelivered, s.kind(t, "0"))
	})
}

func TestADrainWaitsForCallsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Second)}, nil)
		s.enqueue(rows(0, 15))
		synctest.Wait()
		start := time.Now()
		s.drain(t.Context())
		require.Equal(t, time.Second, time.Since(start))
		out := s.kinds(t)
		require.Len(t, out, 15)
		require.Equal(t, verdictDelivered, out["9"])
		require.Equal(t, verdictBack, out["10"])
		require.Len(t, s.pub.sent(), 1)
		s.drain(t.Context())
		require.Equal(t, time.Second, time.Since(start), "there is nothing to wait for")
	})
}

func TestADrainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Hour)}, nil)
		s.enqueue(rows(0, 1))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		s.drain(ctx)
		require.Equal(t, time.Second, time.Since(start))
		require.Empty(t, s.kinds(t))
	})
}

func TestTheEndOfRunCutsCallsAndSettlesEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Hour)}, nil)
		s.warm()
		s.enqueue(rows(0, 82))
		synctest.Wait()
		s.cancel()
		out := s.kinds(t)
		require.Len(t, out, 82)
		require.Equal(t, verdictUnknown, out["79"])
		require.Equal(t, verdictBack, out["80"])
		require.False(t, s.state().paused, "the cut was ours")

		s.enqueue(rows(82, 1))
		require.Equal(t, verdictBack, s.kind(t, "82"))
	})
}

func TestACallThatRunEndsBeforeItBeganSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{}, nil)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		c := &call{batch: make([]item, 2)}
		s.publish(ended, c)
		require.Equal(t, []Result{{Outcome: OutcomeBack}, {Outcome: OutcomeBack}}, c.results)
		require.Empty(t, s.pub.sent())
	})
}

func TestAnOpenThatRunEndsIsNoFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{opening: func(ctx context.Context) error {
			<-ctx.Done()
			return &Fault{Reason: "unreachable"}
		}}, nil)
		s.cancel()
		require.Empty(t, s.logged())
	})
}
