package e2e_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStreamDeliversLiveRowsAtOnceAndThePollerNone(t *testing.T) {
	t.Parallel()
	const n, perSecond = 600, 200
	w := newWorld(t, sections{"poller": slowPoller})
	p := w.stream()
	p.says("catching up")
	w.eventually("true", `SELECT bool_and(state = 'idle' AND clock_timestamp() > state_change + interval '1 s')::text
		FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pgrelay poller'`) // it has
	found := p.gauges("pgrelay_poller_ids_total")

	// Before its commit is sent is when a row could be there at the earliest.
	committed := make(map[string]time.Time, n)
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for range n {
		<-tick.C
		at := time.Now()
		id := w.string(`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', '{}') RETURNING event_id::text`)
		committed[id] = at
	}
	var took []time.Duration // only told: on a busy machine the queue in front of it is longer than what there is to measure
	for _, m := range w.arrive(standardQueue, n) {
		took = append(took, m.ReceivedAt.Sub(committed[m.Attributes["event_id"].Value]))
	}
	slices.Sort(took)
	t.Logf("commit to receipt at %d rows/s: median %s, 95 %% %s, 99 %% %s, most %s", perSecond, took[n/2], took[n*95/100], took[n*99/100], took[n-1])

	w.settled(0)
	brought := p.gauges("pgrelay_end_to_end_seconds")
	require.Equal(t, float64(n), brought["queue stream"])
	require.Zero(t, brought["queue poller"])
	require.Equal(t, found, p.gauges("pgrelay_poller_ids_total"), "the poller found rows")
	p.stop()
}
