package relay

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestADestinationIsOpenedBeforeItTakesRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reached := make(chan struct{})
		s := begin(t, &fakePublisher{opening: func(context.Context) error { <-reached; return nil }}, nil)
		require.Zero(t, s.room())
		require.Zero(t, s.opens.Load())
		require.Empty(t, s.logged())
		close(reached)
		synctest.Wait()
		require.Equal(t, 20, s.room())
		require.EqualValues(t, 1, s.opens.Load())
		require.Equal(t, 1, strings.Count(s.logged(), "\n"))
		require.Contains(t, s.logged(), "destination ready")
	})
}

func TestAnUnreachableDestinationStartsPausedAndSaysSoOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		s := begin(t, &fakePublisher{opening: func(context.Context) error {
			if up.Load() {
				return nil
			}
			return &Fault{Reason: "queue_missing", Detail: "create the queue", Err: errors.New("secret")}
		}}, nil)
		st := s.state()
		require.True(t, st.paused)
		require.Equal(t, "queue_missing", st.reason)
		require.Equal(t, 125*time.Millisecond, time.Until(st.until))
		require.Equal(t, time.Now(), st.since)
		pass(time.Minute)
		require.Zero(t, s.room())
		require.Equal(t, 1, strings.Count(s.logged(), "\n"), s.logged())
		require.Contains(t, s.logged(), `"reason":"queue_missing","detail":"create the queue"`)
		require.Contains(t, s.logged(), "destination starts paused")
		require.NotContains(t, s.logged(), "secret")

		s.enqueue(rows(0, 2))
		require.Equal(t, map[string]verdictKind{"0": verdictBack, "1": verdictBack}, s.kinds(t))

		up.Store(true)
		pass(10 * time.Second)
		require.False(t, s.state().paused)
		require.Equal(t, 20, s.room())
		require.Regexp(t, `"paused_for":"1m[0-9.]+s","message":"destination resumed"`, s.logged())
	})
}

func TestAFaultPausesAndGivesBackEverythingWithoutCharge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: down}, nil)
		s.enqueue(append(rows(0, 55), row("a1", "a"), row("a2", "a")))
		out := s.kinds(t)
		require.Len(t, out, 57)
		for id, kind := range out {
			require.Equal(t, verdictBack, kind, id)
		}
		require.Len(t, s.pub.sent(), 1)
		require.Zero(t, s.room())
		require.Equal(t, health{true, "unreachable", "nobody listens", time.Now()}, s.state().health)
	})
}

func TestWhatAFaultyCallMayHaveStoredIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: func(_ context.Context, batch []*Message) ([]Result, *Fault) {
			return []Result{{Outcome: OutcomeDelivered}, {Outcome: OutcomeUnknown}, {Outcome: OutcomeBack}}, &Fault{Reason: "throttled", Throttled: true}
		}}, nil)
		s.enqueue(rows(0, 3))
		require.Equal(t, map[string]verdictKind{"0": verdictDelivered, "1": verdictUnknown, "2": verdictBack}, s.kinds(t))
		require.Equal(t, "throttled", s.state().reason)
	})
}

func TestAProbeTakesOneRowAndCallsInFlightGrowAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: down}, nil)
		s.enqueue(rows(0, 1))
		synctest.Wait()
		opens := s.opens.Load()
		pass(125 * time.Millisecond)
		require.Equal(t, 2, s.pub.opened(), "opened again after the pause")
		require.Equal(t, 1, s.room())
		require.Equal(t, opens+1, s.opens.Load())
		require.True(t, s.state().paused, "until something gets through")

		s.pub.answer = slow(time.Second)
		s.enqueue(rows(1, 200)) // more than asked for
		synctest.Wait()
		require.Len(t, s.pub.sent()[1], 1)
		require.Zero(t, s.room())

		// Of the answers of each round, every one lets one call more go.
		for _, calls := range []int{3, 5, 9, 17} {
			pass(time.Second)
			require.Len(t, s.pub.sent(), calls)
		}
	})
}

func TestAFailedProbeDoublesThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: down}, nil)
		for _, pause := range []time.Duration{125, 250, 500, 1000, 2000, 4000, 5000, 5000} {
			require.NotZero(t, s.room())
			s.enqueue(rows(len(s.pub.sent()), 1))
			synctest.Wait()
			require.Equal(t, pause*time.Millisecond, time.Until(s.state().until))
			pass(pause * time.Millisecond)
		}
		require.Equal(t, 1, strings.Count(s.logged(), "destination paused"), "a line per change, not per failure")
	})
}

func TestAnHourOfOutageCostsFewCallsAndKillsNoRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 2)
		s := begin(t, &fakePublisher{answer: down}, func(c *destinationConfig) { c.opened = func() { wake <- struct{}{} } })
		waiting := rows(0, 20)
		for start := time.Now(); time.Since(start) < time.Hour; {
			if n := min(s.room(), len(waiting)); n > 0 {
				s.enqueue(waiting[:n])
				waiting = append(waiting[n:], waiting[:n]...)
			}
			select {
			case <-wake:
			case <-time.After(time.Minute):
			}
		}
		synctest.Wait()
		for _, d := range s.settled {
			require.Equal(t, verdictBack, d.verdict.kind)
		}
		require.Less(t, len(s.pub.sent()), 800)
		require.Greater(t, len(s.pub.sent()), 600, "it is tried all the time")
		require.Less(t, s.pub.opened(), 800)
	})
}

func TestAStormOfUnknownOutcomesPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: func(_ context.Context, batch []*Message) ([]Result, *Fault) {
			<-time.After(15 * time.Second) // the publisher's deadline
			return all(batch, OutcomeUnknown), nil
		}}, nil)
		s.warm()
		s.enqueue(rows(0, 200))
		pass(15 * time.Second)
		require.Equal(t, "no_answer", s.state().reason)
		pass(15 * time.Second) // calls that began before the third ended
		count := map[verdictKind]int{}
		for _, kind := range s.kinds(t) {
			count[kind]++
		}
		require.GreaterOrEqual(t, count[verdictUnknown], 80)
		require.LessOrEqual(t, count[verdictUnknown], 100)
		require.Equal(t, 200, count[verdictUnknown]+count[verdictBack])
	})
}

func TestAWrongNumberOfResultsIsUnknownForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: func(_ context.Context, batch []*Message) ([]Result, *Fault) {
			return all(batch[1:], OutcomeDelivered), nil
		}}, nil)
		s.enqueue(rows(0, 3))
		for _, v := range s.outcomes(t) {
			require.Equal(t, verdictUnknown, v.kind)
			require.Equal(t, "bad_answer", v.reason)
			require.Equal(t, "the publisher gave 2 results for 3 messages", v.detail)
		}
		require.EqualValues(t, 3, s.measured(t)["pgrelay_publish_failures_total bookings bad_answer"])
	})
}
