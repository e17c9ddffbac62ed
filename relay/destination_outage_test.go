package relay

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnHourLongOutageEndsInOrderAndNobodyElseNotices feeds a destination as the claimer does, with a line among its rows, through an
// hour in which nothing gets through.
func TestAnHourLongOutageEndsInOrderAndNobodyElseNotices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := begin(t, &fakePublisher{answer: func(ctx context.Context, batch []*Message) ([]Result, *Fault) {
			if time.Since(began) < time.Hour {
				return down(ctx, batch)
			}
			return slow(100*time.Millisecond)(ctx, batch)
		}}, nil)
		other := begin(t, &fakePublisher{}, nil)

		var waiting []*delivery
		for n := range 400 {
			line := ""
			if n%2 == 0 {
				line = "a"
			}
			waiting = append(waiting, row(strconv.Itoa(n), line))
		}
		delivered := []string{}
		minute := 0
		for time.Since(began) < 2*time.Hour && len(delivered) < 400 {
			if state := s.state(); state.waiting+state.inFlight == 0 {
				s.mu.Lock()
				var back []*delivery
				for _, d := range s.settled {
					if d.verdict.kind == verdictDelivered {
						delivered = append(delivered, d.row.ID)
						continue
					}
					require.Equal(t, verdictBack, d.verdict.kind, "no attempt is charged and nobody dies")
					back = append(back, d)
				}
				s.settled = nil
				s.mu.Unlock()
				waiting = append(back, waiting...)
				n := min(s.room(), len(waiting))
				s.enqueue(waiting[:n])
				waiting = waiting[n:]
			}
			pass(10 * time.Millisecond)
			if m := int(time.Since(began) / time.Minute); m > minute && m < 60 {
				minute = m
				require.GreaterOrEqual(t, other.room(), 20, "the other destination has all its room")
				other.enqueue(rows(1000+m, 1))
			}
		}
		require.Len(t, delivered, 400)
		last := -1
		for _, id := range delivered {
			if n, err := strconv.Atoi(id); err == nil && n%2 == 0 {
				require.Greater(t, n, last, "the line's order")
				last = n
			}
		}
		calls := s.pub.sent()
		probes := 0
		for probes+1 < len(calls) && len(calls[probes+1]) == 1 { // the first call knew of nothing
			probes++
		}
		require.Less(t, probes, 800+200, "no storm: some 720 probes, and the line that goes one by one at the end")
		require.Greater(t, probes, 600, "one row a probe, all the time")
		require.Len(t, other.kinds(t), 59)
		require.Len(t, other.pub.sent(), 59)
		require.Empty(t, other.measured(t)["pgrelay_publish_failures_total bookings unreachable"])
	})
}
