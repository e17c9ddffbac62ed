package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

// sixPublished has rows of a kind published, with ordering keys key1 to key6, a second of
// published_at apart, and returns their ids.
func (w *world) sixPublished(kind, queue string) []string {
	w.t.Helper()
	ids := w.strings(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload)
		SELECT $1, 'key' || n, to_jsonb(n) FROM generate_series(1, 6) n RETURNING id::text`, kind)
	w.arrive(queue, 6)
	w.settled(0)
	w.exec(`UPDATE pgrelay.outbox_events SET published_at = '2026-01-31T10:00:00Z'::timestamptz + payload::int * interval '1 second'`)
	return ids
}

func TestRepublishSendsWhatItSelectsAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ kind, queue string }{
		"standard queue": {"q", standardQueue},
		"FIFO queue":     {"f", fifoQueue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sections{"poller": slowPoller}) // only a call wakes it
			p := w.start()
			ids := w.sixPublished(c.kind, c.queue)
			sent := 6
			again := func(selection []string, want ...string) {
				t.Helper()
				args := append([]string{"republish", "--table", "pgrelay.outbox_events"}, selection...)
				require.Contains(t, w.done(append(args, "--dry-run")...), "would be republished")
				require.Contains(t, w.done(args...), "row(s) of pgrelay.outbox_events republished")
				require.ElementsMatch(t, want, bodies(w.arrive(c.queue, sent+len(want)))[sent:])
				sent += len(want)
				w.settled(0)
			}
			again([]string{"--id", ids[1], "--id", ids[3]}, "2", "4")
			again([]string{"--id", ids[1]}, "2")
			again([]string{"--where", "ordering_key=key5", "--where", "event_type=" + c.kind}, "5")
			again([]string{"--since", "2026-01-31T10:00:03Z", "--until", "2026-01-31T10:00:06Z"}, "3", "6")
			p.stop()
			messages := w.sqs.Messages(c.queue)
			require.Len(t, messages, sent)
			require.Zero(t, w.sqs.Deduplicated(c.queue))
			requireSameEvents(t, messages[6:], messages[:6])
		})
	}
}

// requireSameEvents checks that each message that came again is the one that it repeats.
func requireSameEvents(t *testing.T, again, first []sqstest.Message) {
	t.Helper()
	event := map[string]string{}
	for _, m := range first {
		event[m.Body] = m.Attributes["event_id"].Value
	}
	for _, m := range again {
		require.Equal(t, event[m.Body], m.Attributes["event_id"].Value)
	}
}

func TestDryRunOnlyCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p := w.start()
	w.sixPublished("q", standardQueue)
	out := w.done("republish", "--table", "pgrelay.outbox_events", "--since", "2026-01-31", "--dry-run", "--json")
	require.JSONEq(t, `{"rows": 6}`, out)
	w.settled(0)
	p.stop()
	require.Equal(t, 6, w.sqs.Count(standardQueue))
}

func TestRowSetBackByHandGoesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": "{interval: 50ms}"})
	p := w.start()
	w.insert("q", 5)
	w.insert("f", 5)
	w.arrive(standardQueue, 5)
	w.arrive(fifoQueue, 5)
	w.settled(0)
	w.exec(`UPDATE pgrelay.outbox_events SET published_at = NULL WHERE payload IN ('2', '4')`)
	require.ElementsMatch(t, []string{"2", "4"}, bodies(w.arrive(standardQueue, 7))[5:])
	require.ElementsMatch(t, []string{"2", "4"}, bodies(w.arrive(fifoQueue, 7))[5:])
	w.settled(0)
	p.stop()
	require.Equal(t, 7, w.sqs.Count(standardQueue))
	require.Equal(t, 7, w.sqs.Count(fifoQueue))
	require.Zero(t, w.sqs.Deduplicated(fifoQueue))
}

func TestLedgerKeepsAnEventFromGoingOutAgainUntilForced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"outboxes": "[{table: pgrelay.outbox_events, ledger: pgrelay.processed_events, routes: " + routes + "}]"})
	p := w.start()
	ids := w.insert("f", 3)
	w.arrive(fifoQueue, 3)
	w.settled(0)
	w.exec(`UPDATE pgrelay.outbox_events SET published_at = NULL`)
	w.settled(0)
	code, _, stderr := w.run("republish", "--table", "pgrelay.outbox_events", "--id", ids[0])
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "--force")
	require.Equal(t, 3, w.sqs.Count(fifoQueue))
	require.Contains(t, w.done("republish", "--table", "pgrelay.outbox_events", "--id", ids[0], "--force"), "1 row(s) of pgrelay.outbox_events republished")
	w.arrive(fifoQueue, 4)
	w.settled(0)
	p.stop()
	require.Equal(t, 4, w.sqs.Count(fifoQueue))
}

func TestRepublishOfWhatIsNotThereFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"table":        {[]string{"--table", "orders", "--id", "1"}, 1, `no outbox "orders" is configured; there are pgrelay.outbox_events`},
		"column":       {[]string{"--table", "pgrelay.outbox_events", "--where", "colour=red"}, 1, `has no column "colour"; its columns are id,`},
		"id":           {[]string{"--table", "pgrelay.outbox_events", "--id", "4711"}, 1, "has no row with id 4711"},
		"value":        {[]string{"--table", "pgrelay.outbox_events", "--where", "event_id=red"}, 1, "does not fit its column"},
		"no condition": {[]string{"--table", "pgrelay.outbox_events"}, 2, "say which rows"},
		"no table":     {[]string{"--id", "4711"}, 2, "--table is missing"},
		"bad time":     {[]string{"--table", "pgrelay.outbox_events", "--since", "yesterday"}, 2, "--since yesterday: write a time as"},
	} {
		code, _, stderr := w.run(append([]string{"republish"}, c.args...)...)
		require.Equal(t, c.code, code, name)
		require.Contains(t, stderr, c.says, name)
	}
}
