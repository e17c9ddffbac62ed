package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckSaysWhatToMendAndExitsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	require.Contains(t, w.done("check"), "`pgrelay run` makes it")

	p := w.start()
	require.Contains(t, p.stderr.String(), "max_slot_wal_keep_size is not set")
	w.eventually("1", `SELECT count(*)::text FROM pg_replication_slots WHERE database = current_database() AND active`)
	report := w.done("check")
	require.Contains(t, report, "a relay is streaming")
	require.Contains(t, report, "carries the inserts of every outbox")
	p.stop()

	w.exec(`DROP INDEX pgrelay.outbox_events_pending`)
	w.sqs.DeleteQueue(fifoQueue)
	code, stdout, stderr := w.run("check")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "2 of")
	require.Contains(t, stdout, `→ run: CREATE INDEX CONCURRENTLY ON pgrelay.outbox_events ("id") WHERE "published_at" IS NULL`)
	require.Contains(t, stdout, "create the queue")

	code, stdout, _ = w.run("check", "--json")
	require.Equal(t, 1, code)
	var parsed struct {
		Lines []struct{ Name, Level, Text, Fix string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &parsed))
	var failed []string
	for _, l := range parsed.Lines {
		if l.Level == "failure" {
			failed = append(failed, l.Name)
			require.NotEmpty(t, l.Fix)
		}
	}
	require.Equal(t, []string{"outbox pgrelay.outbox_events", "destination fifo"}, failed)
}
