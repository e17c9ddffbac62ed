package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/status"
	"pgrelay/relay"
)

func TestStatusSaysWhatTheLeaderHasPaused(t *testing.T) {
	t.Parallel()
	running := &relay.State{
		Instance: "a",
		Destinations: []relay.DestinationState{
			{Name: "fifo"},
			{Name: "bookings", Paused: true, Reason: "queue_missing", Detail: "create the queue", PausedSeconds: 8.9, ProbeSeconds: 3},
		},
		Outboxes: []relay.OutboxState{
			{Table: "public.one", Problem: "permission denied"},
			{Table: "public.two", Paused: []relay.RouteState{{Outbox: "public.two", Route: "q*", Reason: "template_failed", PausedSeconds: 61}}},
		},
	}
	st := status.Status{Leader: status.Leader{Instance: "a"}}
	hear(&st, running)
	var p page
	printStatus(&p, st)
	require.Contains(t, p.String(), "\n\ndestination bookings is paused for 9s: queue_missing: create the queue; it is tried again in 3s\n")
	require.Contains(t, p.String(), "\n\noutbox public.one is left alone for a while, because its table refuses the relay: permission denied\n")
	require.Contains(t, p.String(), "\n\nroute q* of public.two is paused for 1m1s, because its rows all die of template_failed;")
	require.NotContains(t, p.String(), "fifo")

	for _, silent := range []*relay.State{nil, {Instance: "b", Destinations: running.Destinations, Outboxes: running.Outboxes}} {
		st := status.Status{Leader: status.Leader{Instance: "a"}}
		hear(&st, silent)
		require.Equal(t, status.Status{Leader: status.Leader{Instance: "a"}}, st, "only the leader knows")
	}
}
