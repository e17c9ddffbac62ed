package relay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestABacklogGoesInFullBatchesAndARestLeavesWithoutWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Second)}, nil)
		s.warm()
		s.enqueue(rows(0, 25))
		synctest.Wait()
		require.ElementsMatch(t, [][]string{ids(0, 10), ids(10, 10), ids(20, 5)}, s.pub.sent())
		require.Equal(t, 25, s.state().inFlight)
	})
}

func TestCallsAreFullWhileAHotKeyWaitsInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Second)}, func(c *destinationConfig) { c.rows = 250 })
		s.warm()
		var ds []*delivery
		for i := range 50 {
			ds = append(ds, row(fmt.Sprint("hot", i), "hot"))
		}
		for i := range 200 {
			ds = append(ds, row(strconv.Itoa(i), fmt.Sprint("key", i)))
		}
		s.enqueue(ds)
		synctest.Wait()
		for round := range 2 {
			calls := s.pub.sent()[8*round:]
			require.Len(t, calls, 8)
			for _, call := range calls {
				require.Len(t, call, 10)
			}
			hot := slices.DeleteFunc(slices.Concat(calls...), func(id string) bool { return !strings.HasPrefix(id, "hot") })
			require.Equal(t, []string{fmt.Sprint("hot", round)}, hot, "one of the key in each round trip, and first")
			pass(time.Second)
		}
	})
}

func TestASingleRowLeavesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{}, nil)
		start := time.Now()
		s.enqueue(rows(0, 1))
		require.Equal(t, map[string]verdictKind{"0": verdictDelivered}, s.kinds(t))
		require.Zero(t, time.Since(start))
	})
}

func TestPartialBatchesGatherWhileSeveralCallsAreInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Second)}, nil)
		s.warm()
		for i := range 9 {
			s.enqueue(rows(i, 1))
			synctest.Wait()
		}
		require.Equal(t, [][]string{{"0"}, {"1"}, {"2"}, {"3"}}, s.pub.sent(), "the fifth waits for company")
		pass(patience)
		require.Equal(t, ids(4, 5), s.pub.sent()[4], "but not for long")

		s.enqueue(rows(9, 11))
		synctest.Wait()
		require.Equal(t, ids(9, 10), s.pub.sent()[5], "a full one leaves at once")
		require.Len(t, s.pub.sent(), 6)
	})
}

func TestACallThatEndsTakesWhatHasGathered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(3 * time.Millisecond)}, nil)
		s.warm()
		for i := range 7 {
			s.enqueue(rows(i, 1))
			synctest.Wait()
		}
		pass(3 * time.Millisecond)
		require.Equal(t, ids(4, 3), s.pub.sent()[4])
	})
}

func TestLingerWaitsForAFullBatchButNotLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{}, func(c *destinationConfig) { c.linger = 100 * time.Millisecond })
		s.enqueue(rows(0, 1))
		pass(60 * time.Millisecond)
		s.enqueue(rows(1, 1))
		pass(39 * time.Millisecond)
		require.Empty(t, s.pub.sent())
		pass(time.Millisecond)
		require.Equal(t, [][]string{{"0", "1"}}, s.pub.sent())

		s.enqueue(rows(2, 10))
		synctest.Wait()
		require.Equal(t, ids(2, 10), s.pub.sent()[1])
	})
}

func TestBatchesKeepTheByteLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{limits: Limits{Messages: 10, Bytes: 100}}, nil)
		ds := rows(0, 5)
		for i, size := range []int{60, 30, 20, 80, 1} {
			ds[i].msg.Body = strings.Repeat("x", size)
		}
		s.enqueue(ds)
		synctest.Wait()
		require.ElementsMatch(t, [][]string{{"0", "1"}, {"2", "3"}, {"4"}}, s.pub.sent())
	})
}

func TestCallsInFlightNeverExceedTheConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Millisecond)}, func(c *destinationConfig) { c.concurrency = 3 })
		s.enqueue(rows(0, 500))
		pass(time.Second)
		require.Len(t, s.kinds(t), 500)
		require.Equal(t, 3, s.pub.most)
		require.Len(t, s.pub.sent(), 50)
	})
}

func TestAFullDestinationHasRoomAgainWhenAQuarterIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := slow(time.Second)
		s := begin(t, &fakePublisher{answer: func(ctx context.Context, batch []*Message) ([]Result, *Fault) {
			if batch[0].RowID == "0" {
				return first(ctx, batch)
			}
			return slow(2*time.Second)(ctx, batch)
		}}, func(c *destinationConfig) { c.concurrency, c.rows = 4, 80 })
		s.warm()
		s.enqueue(rows(0, 75))
		require.Equal(t, 5, s.room())
		s.enqueue(rows(75, 5))
		require.Equal(t, 0, s.room())

		opens := s.opens.Load()
		pass(time.Second)
		require.Equal(t, 0, s.room(), "ten are free: claims would become small")
		pass(time.Second)
		require.Equal(t, 40, s.room())
		require.Equal(t, opens+1, s.opens.Load(), "told once that claims can go on")
	})
}

func TestRowsOfUnknownOutcomeGoAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{}, nil)
		ds := rows(0, 4)
		ds[1].row.Unknowns = 1
		s.enqueue(ds)
		synctest.Wait()
		require.ElementsMatch(t, [][]string{{"0"}, {"1"}, {"2", "3"}}, s.pub.sent())
	})
}

func TestMetricsCountMessagesAndTimesFromCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{}, nil)
		ds := rows(0, 3)
		ds[0].committed, ds[0].source = time.Now().Add(-20*time.Millisecond), "stream"
		ds[1].committed, ds[1].source = time.Now().Add(time.Hour), "stream" // by a clock that is ahead
		s.enqueue(ds)
		synctest.Wait()
		m := s.measured(t)
		require.EqualValues(t, 0, m["pgrelay_destination_paused bookings"])
		require.EqualValues(t, 3, m["pgrelay_published_total bookings"])
		require.EqualValues(t, 1, m["pgrelay_batch_messages_count bookings"])
		require.EqualValues(t, 3, m["pgrelay_batch_messages_sum bookings"])
		require.EqualValues(t, 2, m["pgrelay_end_to_end_seconds_count bookings stream"], "only where the commit time is known")
		require.InDelta(t, 0.02, m["pgrelay_end_to_end_seconds_sum bookings stream"], 1e-9)

		s.pub.answer = down
		s.enqueue(rows(3, 2))
		synctest.Wait()
		m = s.measured(t)
		require.EqualValues(t, 1, m["pgrelay_destination_paused bookings"])
		require.EqualValues(t, 2, m["pgrelay_publish_failures_total bookings unreachable"])
	})
}
