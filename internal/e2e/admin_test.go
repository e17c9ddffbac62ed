package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestSecondInstanceStandsByAndTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	leader := w.start()
	standby := w.launch(nil, "run")
	standby.says("another instance leads; standing by")
	for p, ready := range map[*process]string{leader: "leading", standby: "standing by"} {
		pgtest.Eventually(t, patience, func() error {
			if status, body := p.get("/readyz"); status != 200 || body != ready+"\n" {
				return fmt.Errorf("%d %s", status, body)
			}
			return nil
		}, "ready, %s", ready)
		status, body := p.get("/healthz")
		require.Equal(t, "200 ok\n", fmt.Sprint(status, " ", body))
	}
	require.Equal(t, map[string]float64{"": 1}, leader.gauges("pgrelay_leader"))
	require.Equal(t, map[string]float64{"": 0}, standby.gauges("pgrelay_leader"))

	w.insert("q", 10)
	w.arrive(standardQueue, 10)
	w.settled(0)
	leader.kill()
	w.insert("q", 10)
	w.arrive(standardQueue, 20)
	standby.says("leading")
	_, body := standby.get("/readyz")
	require.Equal(t, "leading\n", body)
	w.settled(0)
	require.Equal(t, 10.0, standby.gauges("pgrelay_published_total")["queue"])
	standby.stop()
	require.ElementsMatch(t, w.strings(`SELECT event_id::text FROM pgrelay.outbox_events`), eventIDs(w.sqs.Messages(standardQueue)))
}
