package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFill(t *testing.T) {
	t.Parallel()
	type waiting struct{ bytes, unknowns int }
	for name, c := range map[string]struct {
		queue  []waiting
		limits Limits
		n      int
		full   bool
	}{
		"fewer than a call takes":                    {[]waiting{{}, {}}, Limits{Messages: 3}, 2, false},
		"as many as a call takes":                    {[]waiting{{}, {}, {}}, Limits{Messages: 3}, 3, true},
		"more than a call takes":                     {[]waiting{{}, {}, {}, {}}, Limits{Messages: 3}, 3, true},
		"the next would burst it":                    {[]waiting{{bytes: 60}, {bytes: 41}}, Limits{10, 100}, 1, true},
		"exactly as many bytes":                      {[]waiting{{bytes: 60}, {bytes: 40}}, Limits{10, 100}, 2, false},
		"bytes without a limit":                      {[]waiting{{bytes: 1 << 40}, {bytes: 1 << 40}}, Limits{Messages: 10}, 2, false},
		"too large for any call goes alone":          {[]waiting{{bytes: 101}, {bytes: 1}}, Limits{10, 100}, 1, true},
		"an unknown one goes alone":                  {[]waiting{{unknowns: 1}, {}}, Limits{Messages: 10}, 1, true},
		"an unknown one joins no batch":              {[]waiting{{}, {}, {unknowns: 1}}, Limits{Messages: 10}, 2, true},
		"an unknown one alone has no use of waiting": {[]waiting{{unknowns: 1}}, Limits{Messages: 10}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var q ring
			for _, w := range c.queue {
				q.push(item{delivery: &delivery{row: Row{Unknowns: w.unknowns}}, bytes: w.bytes})
			}
			n, full := fill(&q, c.limits)
			require.Equal(t, c.n, n)
			require.Equal(t, c.full, full)
		})
	}
}

func TestDeparture(t *testing.T) {
	t.Parallel()
	first := time.Unix(1000, 0)
	held := first.Add(time.Millisecond)
	require.Equal(t, first, departure(0, fewCalls-1, first, held), "at once while few calls are in flight")
	require.Equal(t, held.Add(patience), departure(0, fewCalls, first, held), "patiently while many are")
	require.Equal(t, first.Add(time.Second), departure(time.Second, 0, first, held), "linger asks to wait")
	require.Equal(t, first.Add(time.Second), departure(time.Second, fewCalls, first, held))
}
