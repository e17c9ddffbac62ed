package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/relay"
)

const ownTable = "pgrelay.outbox_events"

// about is a command line about one row of the world's outbox.
func about(command, id string, more ...string) []string {
	return append([]string{command, "--table", ownTable, "--id", id}, more...)
}

func (w *world) explains(id string) (e relay.Explanation) {
	w.t.Helper()
	require.NoError(w.t, json.Unmarshal([]byte(w.done(about("explain", id, "--json")...)), &e))
	return e
}

func TestRenderShowsTheMessageThatArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.string(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, headers)
		VALUES ('f', 'customer 7', '{"b": "<\t>", "a": 1.50}', '{"trace": "x\ty"}') RETURNING id::text`)
	text := w.done(about("render", id)...)
	require.Contains(t, text, "\n\n{\"a\": 1.50, \"b\": \"<\\t>\"}\n")
	require.Contains(t, text, `trace = "x\ty"`)
	require.Contains(t, text, "fifo (sqs "+fifoQueue+")")
	var r relay.Rendered
	require.NoError(t, json.Unmarshal([]byte(w.done(about("render", id, "--json")...)), &r))
	require.Zero(t, w.sqs.Count(fifoQueue), "nothing is sent")
	w.start()
	m := w.arrive(fifoQueue, 1)[0]
	require.Equal(t, m.Body, r.Body)
	require.Equal(t, m.GroupID, r.Group)
	require.Equal(t, m.DedupID, r.DedupID)
	require.Len(t, m.Attributes, len(r.Attributes))
	for _, a := range r.Attributes {
		require.Equal(t, m.Attributes[a.Name].Value, a.Value)
	}
}

func TestRenderAndExplainExitOneForWhatIsNotThereOrNeverGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	strange := w.insert("strange", 1)[0]
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{about("render", strange), 1, "unknown_kind: no route"},
		{about("render", "4711"), 1, "has no row with id 4711"},
		{about("explain", "4711"), 1, "has no row with id 4711"},
		{about("explain", "many"), 1, "does not fit its column"},
		{[]string{"explain", "--table", "orders", "--id", "1"}, 1, `no outbox "orders" is configured; there are pgrelay.outbox_events`},
		{[]string{"explain", "--table", ownTable}, 2, "--id is missing"},
		{[]string{"render", "--id", "1"}, 2, "--table is missing"},
	} {
		code, _, stderr := w.run(c.args...)
		require.Equal(t, c.code, code, c.args)
		require.Contains(t, stderr, c.says, c.args)
	}
	_, stdout, _ := w.run(about("explain", "4711", "--json")...)
	require.Contains(t, stdout, `"state": "no_row"`)
	require.Contains(t, w.done(about("explain", strange)...), "row "+strange+" of "+ownTable+": no route\n\nNo route of outbox")
}

func TestExplainAsksTheRunningRelayForAPausedDestination(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.configure(sections{"destinations": "{queue: " + w.queue("nowhere") + ", fifo: " + w.queue(fifoQueue) + "}"})
	p := w.launch(nil, "run")
	p.says("replication stream started")
	p.says("destination starts paused")
	id := w.insert("q", 1)[0]
	e := w.explains(id)
	require.Equal(t, relay.StateFree, e.State, "no relay answers at http.addr")
	require.Contains(t, e.Text, "pgrelay_destination_paused")
	addr, ok := p.says("serving metrics and health")["addr"].(string)
	require.True(t, ok)
	w.configure(sections{
		"destinations": "{queue: " + w.queue("nowhere") + ", fifo: " + w.queue(fifoQueue) + "}",
		"http":         "{addr: '" + addr + "'}",
	})
	e = w.explains(id)
	require.Equal(t, relay.StatePaused, e.State, e.Text)
	require.Contains(t, e.Text, "queue_missing")
	require.Empty(t, e.Notes)
}

func TestExplainKnowsThatTheStreamDoesNotBringATable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": "{interval: 60s, sweep_interval: 60s}"})
	w.exec(`CREATE TABLE other (id int PRIMARY KEY)`)
	w.exec(`CREATE PUBLICATION pgrelay FOR TABLE other`) // updates, too: somebody else reads it
	first := w.insert("q", 1)
	w.start()
	w.arrive(standardQueue, 1) // by the first look
	w.settled(0)
	e := w.explains(w.insert("q", 1)[0])
	require.Equal(t, relay.StateFree, e.State, e.Text)
	require.Len(t, e.Notes, 1)
	require.Contains(t, e.Notes[0], "publication pgrelay does not carry this outbox")
	require.Equal(t, relay.StatePublished, w.explains(first[0]).State)
}

func TestStatusOfAnOutboxThatCannotBeCountedHidesNoOther(t *testing.T) {
	t.Parallel()
	routes := `routes: [{kind: "*", to: queue, body: x}]`
	w := newWorld(t, sections{"outboxes": `[{table: pgrelay.outbox_events, ` + routes + `}, {table: shares, ready: 10 / o.n > 1, ` + routes + `}]`})
	w.exec(`CREATE TABLE shares (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, published_at timestamptz); INSERT INTO shares (n) VALUES (0)`)
	code, stdout, stderr := w.run("status")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "pgrelay.outbox_events")
	require.Contains(t, stderr, "outbox public.shares: a value does not fit its column, or its join, select or ready fails for a row: division by zero")
}
