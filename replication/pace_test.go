package replication

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPaceReportsAsksAndGivesUpInTime(t *testing.T) {
	t.Parallel()
	t0 := time.Unix(1000, 0)
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	for name, c := range map[string]struct {
		heard, sent, asked, now float64
		moved                   bool
		do                      step
		wake                    float64
	}{
		"standing still waits ten seconds":    {heard: 5, sent: 0, asked: -1, now: 6, do: stepWait, wake: 10},
		"standing still reports":              {heard: 5, sent: 0, asked: -1, now: 10, do: stepReport},
		"having moved waits a second":         {heard: 5, sent: 5, asked: -1, now: 5.5, moved: true, do: stepWait, wake: 6},
		"having moved reports":                {heard: 5, sent: 5, asked: -1, now: 6, moved: true, do: stepReport},
		"silence wakes":                       {heard: 0, sent: 8, asked: -1, now: 9, do: stepWait, wake: 10},
		"silence asks":                        {heard: 0, sent: 8, asked: -1, now: 10, do: stepAsk},
		"having asked waits for the answer":   {heard: 0, sent: 10, asked: 10, now: 11, do: stepWait, wake: 20},
		"asks again":                          {heard: 0, sent: 10, asked: 10, now: 20, do: stepAsk},
		"an old question is no question":      {heard: 30, sent: 35, asked: 10, now: 40, do: stepAsk},
		"wakes to give up":                    {heard: 0, sent: 25, asked: 25, now: 26, do: stepWait, wake: 30},
		"silence for too long is a dead peer": {heard: 0, sent: 25, asked: 25, now: 30, do: stepGiveUp},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pace{heard: at(c.heard), sent: at(c.sent), asked: at(c.asked)}
			do, wake := p.next(at(c.now), c.moved)
			require.Equal(t, c.do, do)
			if do == stepWait {
				require.Equal(t, at(c.wake), wake)
			}
		})
	}
}

func TestBackoffDoublesUpToItsMostAndStartsAgain(t *testing.T) {
	t.Parallel()
	b := backoff{first: time.Second, most: 10 * time.Second}
	var got []time.Duration
	for range 6 {
		got = append(got, b.next())
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}, got)
	b.reset()
	require.Equal(t, time.Second, b.next())
}
