package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// payloads are where a round trip through a program's own types would show.
var payloads = []string{
	`12345678901234567890123456789`, `-0`, `1.10`, `0.000`, `1e400`, `1.5e-30`, `123456789012345678.123456789012345678`,
	`{"zebra": 1, "a": 2, "mm": 3, "b": {"y": 1, "x": 2}}`, `{"a": 1, "a": 2}`,
	`"<script>&amp;</script> 'single' \"double\" \\ \/"`, `"tab\tnewline\nreturn\r"`,
	`"😀 grüße 日本語 \ud83d\ude00 \u00e9 \u2028"`, `[]`, `{}`, `""`, `null`, `true`,
	`[1, 2.0, "3", null, {"deep": [[[[{}]]]]}]`, `{"": "empty key", "ключ": "значение"}`,
	`"` + strings.Repeat("long ", 2000) + `"`,
}

func TestBodyIsThePayloadAsPostgreSQLPrintsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"outboxes": "[{table: pgrelay.outbox_events, routes: " + routes +
		"}, {table: as_json, routes: [{kind: q, to: queue}]}, {table: as_text, routes: [{kind: q, to: queue}]}, " +
		"{table: generated, routes: [{kind: q, to: queue}]}]"})
	const table = ` (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), event_type text, published_at timestamptz, payload `
	w.exec(`CREATE TABLE as_json` + table + `json)`)
	w.exec(`CREATE TABLE as_text` + table + `text)`)
	w.exec(`CREATE TABLE generated` + table + `text GENERATED ALWAYS AS (source) STORED, source text)`) // no stream has it before 18
	p := w.stream()
	for _, payload := range payloads {
		w.exec(`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', $1::text::jsonb)`, payload)
		w.exec(`INSERT INTO as_json (event_type, payload) VALUES ('q', $1::text::json)`, "  "+payload+"\n")
		w.exec(`INSERT INTO as_text (event_type, payload) VALUES ('q', $1)`, payload)
		w.exec(`INSERT INTO generated (event_type, source) VALUES ('q', $1)`, payload)
	}
	const rows = `SELECT event_id::text || ' ' || payload::text FROM pgrelay.outbox_events
		UNION ALL SELECT id::text || ' ' || payload::text FROM as_json UNION ALL SELECT id::text || ' ' || payload FROM as_text
		UNION ALL SELECT id::text || ' ' || payload FROM generated`
	var got []string
	for _, m := range w.arrive(standardQueue, 4*len(payloads)) {
		got = append(got, m.Attributes["event_id"].Value+" "+m.Body)
	}
	require.ElementsMatch(t, w.strings(rows), got)
	p.stop()
}
