package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAKeyThatADeadRowHoldsGoesOnWhenAPersonHasDecided also shows that the decision wakes the relay: no look is near.
func TestAKeyThatADeadRowHoldsGoesOnWhenAPersonHasDecided(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		command string
		want    []string
	}{
		"retried":   {"retry", []string{"2", "3"}},
		"discarded": {"discard", []string{"3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sections{
				"poller":   slowPoller,
				"outboxes": `[{table: pgrelay.outbox_events, routes: [{kind: "f*", to: fifo, on_dead: block}]}]`,
			})
			p := w.stream()
			rows := w.strings(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, headers)
				SELECT 'f', 'k', to_jsonb(n), CASE n WHEN 2 THEN '["no object"]'::jsonb END FROM generate_series(1, 3) n RETURNING id::text`)
			dead := rows[1]
			w.exec(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) VALUES ('f', 'other', '9')`)
			require.ElementsMatch(t, []string{"1", "9"}, bodies(w.arrive(fifoQueue, 2)))
			w.settled(1)
			explained := w.done("explain", "--table", "pgrelay.outbox_events", "--id", rows[2])
			require.Contains(t, explained, "Row "+dead+", which comes before it in its ordering key, is dead")
			require.Contains(t, explained, "pgrelay dead retry --table pgrelay.outbox_events --id "+dead)

			w.exec(`UPDATE pgrelay.outbox_events SET headers = NULL WHERE id::text = $1`, dead)
			w.done("dead", way.command, "--table", "pgrelay.outbox_events", "--id", dead)
			require.Equal(t, way.want, bodies(w.arrive(fifoQueue, 2+len(way.want)))[2:])
			w.settled(0)
			p.stop()
		})
	}
}
