package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestWithoutLogicalWALThePollerRelays(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	for name, enabled := range map[string]string{"replication off": "false", "replication wanted": "true"} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, server.NewMigrated(t), sections{
				"replication": "{enabled: " + enabled + "}",
				"poller":      "{interval: 50ms}",
			})
			w.insert("q", 100)
			p := w.start()
			w.arrive(standardQueue, 100)
			w.insert("q", 100)
			w.insert("f", 100)
			w.arrive(standardQueue, 200)
			w.arrive(fifoQueue, 100)
			w.settled(0)
			missing := "no replication stream: rows are found by polling; trying again"
			if enabled == "true" {
				said := p.says(missing)
				require.Equal(t, "wal_level", said["reason"])
				require.Contains(t, said["error"], "set wal_level = logical")
			}
			p.stop()
			require.ElementsMatch(t, w.strings(`SELECT event_id::text FROM pgrelay.outbox_events`),
				eventIDs(append(w.sqs.Messages(standardQueue), w.sqs.Messages(fifoQueue)...)))
			if enabled == "false" {
				require.Empty(t, p.logged(missing))
			}
		})
	}
}

func TestDeferredRowLeavesWhenItIsDue(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]sections{
		"by the stream": {"poller": slowPoller},
		"by polling":    {"poller": "{interval: 200ms, sweep_interval: 1h}", "replication": "{enabled: false}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, change)
			p := w.start()
			w.insert("f", 1)
			w.arrive(fifoQueue, 1) // the first look, which would find all, is over
			w.settled(0)
			w.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload, available_at)
				SELECT 'q', to_jsonb(n), now() + interval '1 second' + n * interval '50 ms' FROM generate_series(1, 20) n`)
			messages := w.arrive(standardQueue, 20)
			w.settled(0)
			p.stop()
			require.Equal(t, 20, w.sqs.Count(standardQueue))
			latest := time.Duration(0)
			for _, m := range messages {
				var due time.Time
				err := w.conn.QueryRow(t.Context(), `SELECT available_at FROM pgrelay.outbox_events WHERE event_id::text = $1`,
					m.Attributes["event_id"].Value).Scan(&due)
				require.NoError(t, err)
				late := m.ReceivedAt.Sub(due)
				require.Positive(t, late, "it was sent before its time")
				latest = max(latest, late)
			}
			t.Logf("the latest of 20 came %s after its time", latest)
		})
	}
}
