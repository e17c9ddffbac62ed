package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

func TestTheLedgerSeesWhatWentWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrived   []string
		swallowed int
		extra     int
		want      summary
	}{
		"nothing":                      {arrived: []string{"a", "b", "c"}, want: summary{sent: 3, received: 3}},
		"other keys have no order":     {arrived: []string{"c", "a", "b"}, want: summary{sent: 3, received: 3}},
		"a row that didn't arrive":     {arrived: []string{"a", "c"}, want: summary{sent: 3, received: 2, lost: 1}},
		"a row that arrived twice":     {arrived: []string{"a", "a", "b", "c"}, want: summary{sent: 3, received: 3, duplicates: 1}},
		"a repeat that SQS dropped":    {arrived: []string{"a", "b", "c"}, swallowed: 1, want: summary{sent: 3, received: 3, duplicates: 1}},
		"a repeat that was asked for":  {arrived: []string{"a", "b", "c", "a"}, extra: 1, want: summary{sent: 3, received: 3, republished: 1}},
		"a republish without a repeat": {arrived: []string{"a", "b", "c"}, extra: 1, want: summary{sent: 3, received: 3, republished: 1, duplicates: -1}},
		"a row that was rolled back":   {arrived: []string{"a", "b", "c", "x"}, want: summary{sent: 3, received: 3, strangers: 1}},
		"a key out of order":           {arrived: []string{"b", "a", "c"}, want: summary{sent: 3, received: 3, disordered: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			l.add(event{row: 1, id: "a", key: "k"})
			l.add(event{row: 2, id: "b", key: "k"})
			l.add(event{row: 3, id: "c", key: "other"})
			l.extra = c.extra
			var messages []sqstest.Message
			for _, id := range c.arrived {
				messages = append(messages, message(id, time.Time{}))
			}
			got := l.settle(messages, c.swallowed)
			require.Equal(t, c.want, got)
			right := c.want.lost == 0 && c.want.duplicates == 0 && c.want.strangers == 0 && c.want.disordered == 0
			require.Equal(t, right, got.adds())
		})
	}
}

func TestTheLedgerTakesLatenciesOfTimedRowsOnly(t *testing.T) {
	t.Parallel()
	var l ledger
	at := time.Unix(100, 0)
	l.add(event{row: 1, id: "a", committed: at, timed: true})
	l.add(event{row: 2, id: "b", committed: at, timed: true})
	l.add(event{row: 3, id: "c", committed: at})
	s := l.settle([]sqstest.Message{
		message("a", at.Add(3*time.Millisecond)), message("b", at.Add(time.Millisecond)), message("c", at.Add(time.Hour)),
	}, 0)
	require.Equal(t, []time.Duration{time.Millisecond, 3 * time.Millisecond}, s.latencies)
	require.Equal(t, 3*time.Millisecond, s.quantile(0.5))
	require.Equal(t, 3*time.Millisecond, s.quantile(1))
	require.Zero(t, summary{}.quantile(0.5))
}

func message(event string, at time.Time) sqstest.Message {
	return sqstest.Message{Attributes: map[string]sqstest.Attribute{"event_id": {Value: event}}, ReceivedAt: at}
}
