package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/relay"
)

// eleven headers are one more than SQS takes attributes, and two come from the relay.
const eleven = `{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9}`

// poison are rows that no queue takes, each with what `dead list` says of it.
var poison = []struct {
	insert         string
	args           []any
	reason, detail string
}{
	{
		`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('strange', '1')`, nil,
		"unknown_kind", `no route of outbox pgrelay.outbox_events matches the kind "strange"`,
	},
	{
		`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', to_jsonb($1::text))`, []any{strings.Repeat("x", 4096)},
		"message_too_large", "the message has 4165 bytes with its attributes; the queue takes 4096",
	},
	{
		`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', to_jsonb($1::text))`, []any{"odd \uFFFE"},
		"invalid_characters", "the body has the character U+FFFE at byte 5, which SQS refuses",
	},
	{
		`INSERT INTO pgrelay.outbox_events (event_type, payload, headers) VALUES ('q', '1', $1)`, []any{eleven},
		"too_many_attributes", "the message has 11 attributes; SQS takes 10",
	},
	{
		`INSERT INTO notes (event_type, payload) VALUES ('q', '')`, nil,
		"empty_body", "the body is empty; SQS takes messages of at least one byte",
	},
	{
		`INSERT INTO notes (event_type, payload) VALUES ('qtemplate', '')`, nil,
		"empty_body", "the body is empty; SQS takes messages of at least one byte",
	},
	{
		`INSERT INTO notes (event_type, payload) VALUES ('q', E'bell \x01')`, nil,
		"invalid_characters", "the body has the character U+0001 at byte 5, which SQS refuses",
	},
}

const good = `INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', '"good"')`

func TestPoisonRowsDieAtOnceWithAReasonAndTheirNeighboursGo(t *testing.T) {
	t.Parallel()
	// The poller looks again and again, so that a retry would show.
	w := newWorld(t, sections{
		"poller": "{interval: 20ms, sweep_interval: 100ms}",
		"outboxes": "[{table: pgrelay.outbox_events, routes: " + routes + `},
  {table: notes, routes: [{kind: qtemplate, to: queue, body: "{{.payload}}"}, {kind: "*", to: queue}]}]`,
	})
	w.exec(`CREATE TABLE notes (id bigserial PRIMARY KEY, event_type text, payload text, published_at timestamptz)`)
	w.sqs.DeleteQueue(standardQueue)
	w.sqs.CreateQueue(standardQueue, map[string]string{"MaximumMessageSize": "4096"})
	p := w.start()

	w.exec(`BEGIN`)
	for _, row := range poison {
		w.exec(good)
		w.exec(row.insert, row.args...)
		w.exec(good)
	}
	w.exec(`COMMIT`)
	neighbours := 2 * len(poison)
	w.arrive(standardQueue, neighbours)
	w.settled(0)
	w.eventually("0", `SELECT count(*)::text FROM notes WHERE published_at IS NULL`)

	var letters []relay.DeadLetter
	require.NoError(t, json.Unmarshal([]byte(w.done("dead", "list", "--json")), &letters))
	var want, got []string
	for _, row := range poison {
		want = append(want, row.reason+": "+row.detail)
	}
	for _, l := range letters {
		got = append(got, l.Reason+": "+l.Detail)
		require.WithinDuration(t, time.Now(), l.Since, patience)
		require.Zero(t, l.Attempts)
	}
	require.ElementsMatch(t, want, got)
	code, _, stderr := w.run("dead", "retry", "--table", "notes", "--all", "--reason", "no_such_reason")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "has no dead letter with reason no_such_reason; there are ")

	// Time enough for looks to come by.
	for range 20 {
		w.exec(good)
		neighbours++
		w.arrive(standardQueue, neighbours)
	}
	w.settled(0)
	sent := 0
	for _, call := range w.sqs.Calls() {
		sent += call.Entries
	}
	require.Equal(t, neighbours, sent, "what no queue takes was sent")
	p.stop()
	got = nil
	for _, e := range p.logged("row is dead") {
		got = append(got, fmt.Sprintf("%s: %s", e["reason"], e["detail"]))
	}
	require.ElementsMatch(t, want, got)
}
