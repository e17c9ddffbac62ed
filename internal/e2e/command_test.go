package e2e_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestMigrateMakesShowsAndDropsTheSchema(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, pgtest.New(t), nil)
	require.Contains(t, w.done("migrate", "status"), "pending")
	require.Contains(t, w.done("migrate", "up"), "applied 00001")
	require.Equal(t, "the schema pgrelay is up to date\n", w.done("migrate", "up"))
	status := w.done("migrate", "status")
	require.Contains(t, status, "applied 2")
	require.NotContains(t, status, "pending")
	w.insert("q", 3)
	p := w.start()
	w.arrive(standardQueue, 3)
	require.Equal(t, "the schema pgrelay is up to date\n", w.done("migrate", "up"), "an upgrade migrates beside the old program")
	code, _, stderr := w.run("migrate", "down")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "a relay leads in this database; stop it and its standbys first")
	p.stop()
	require.Contains(t, w.done("migrate", "down"), "took back")
	require.Equal(t, "0", w.string(`SELECT count(*)::text FROM pg_namespace WHERE nspname = 'pgrelay'`))
	require.Equal(t, "there is no schema pgrelay\n", w.done("migrate", "down"))
}

func TestRunWithoutSchemaNamesTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, pgtest.New(t), nil)
	code, _, stderr := w.run("run")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "pgrelay migrate up")
}

func TestBrokenConfigurationIsExitTwoWithEveryProblem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": "{intervall: 1s}", "relay": "{batch_size: -1}"})
	code, _, stderr := w.run("run")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "pgrelay.yaml:5")
	require.Contains(t, stderr, "intervall")
	require.Contains(t, stderr, "pgrelay.yaml:6")
	require.Contains(t, stderr, "batch_size")

	require.NoError(t, os.Remove(w.file))
	code, _, stderr = w.run("run")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "pgrelay.yaml")
}

func TestUnknownCommandOrFlagIsExitTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, args := range [][]string{{"relay"}, {"run", "--fast"}, {"run", "now"}, {"dead", "retry", "--table", "pgrelay.outbox_events"}} {
		code, _, stderr := w.run(args...)
		require.Equal(t, 2, code, args)
		require.NotEmpty(t, stderr, args)
	}
}

func TestSlotDropTakesASlotThatNobodyReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	slot := "pgrelay_" + w.db.Name
	require.Equal(t, "there is no slot "+slot+"\n", w.done("slot", "drop"))
	p := w.stream()
	code, _, stderr := w.run("slot", "drop")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, slot)
	p.stop()
	require.Equal(t, "dropped slot "+slot+"\n", w.done("slot", "drop"))
	require.Empty(t, w.strings(`SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()`))
}

func TestStatusCountsWhatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.insert("q", 3)
	w.insert("strange", 1)
	w.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload, available_at) VALUES ('q', '1', now() + interval '1 hour')`)
	require.Contains(t, w.done("status"), "leader  none yet")
	p := w.stream()
	w.arrive(standardQueue, 3)
	w.settled(1)
	var status struct {
		Slot     struct{ Exists, Active bool }
		Leader   struct{ Alive bool }
		Outboxes []struct{ Pending, Deferred, Processing, Dead int }
	}
	require.NoError(t, json.Unmarshal([]byte(w.done("status", "--json")), &status))
	require.True(t, status.Slot.Exists && status.Slot.Active && status.Leader.Alive, "%+v", status)
	require.Len(t, status.Outboxes, 1)
	require.Equal(t, struct{ Pending, Deferred, Processing, Dead int }{0, 1, 0, 1}, status.Outboxes[0])
	p.stop()
}
