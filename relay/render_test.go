package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

const renderTable = `CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
	event_type text, ordering_key text, payload json, headers jsonb, total numeric, note text, published_at timestamptz)`

var renderOutbox = config.Outbox{Table: "orders", Routes: []config.Route{
	{Kind: "templated", To: "queue", Body: `{"total":{{json .total}},"note":{{json .note}}}`, Delay: "2m", Attributes: map[string]string{"total": "{{.total}}"}},
	{Kind: "f*", To: "fifo"},
	{Kind: "q*", To: "queue"},
}}

func (f *fixture) render(id string) Rendered {
	f.t.Helper()
	r, err := f.relay.Tables()[0].Render(f.t.Context(), f.conn, id, f.relay.cfg.Destinations)
	require.NoError(f.t, err)
	return r
}

func TestRenderShowsWhatIsSentBeforeAndAfter(t *testing.T) {
	t.Parallel()
	f := newFixture(t, renderOutbox, renderTable)
	kinds := []struct{ kind, destination, body string }{
		{"templated", "queue", `{"total":12.50,"note":"a\tb"}`},
		{"f", "fifo", `{"z" : 1,  "a":[1, 2.0]}`},
		{"q", "queue", `{"z" : 1,  "a":[1, 2.0]}`},
	}
	var before []Rendered
	for _, c := range kinds {
		r := f.render(f.one(`INSERT INTO orders (event_type, ordering_key, payload, headers, total, note)
			VALUES ($1, 'käy 1', '{"z" : 1,  "a":[1, 2.0]}', '{"trace": "t<1>", "n": 1.50}', 12.50, E'a\tb') RETURNING id::text`, c.kind))
		require.Equal(t, c.destination, r.Destination)
		require.Equal(t, c.body, r.Body)
		require.Nil(t, r.Rejection)
		before = append(before, r)
	}
	require.Equal(t, "0", f.one(`SELECT (SELECT count(*) FROM pgrelay.claims)::text`), "nothing was claimed")
	f.start()
	for i, c := range kinds {
		pub := f.pubs[c.destination]
		sent := len(pub.messages())
		f.offer(before[i].ID)
		pub.wait(t, sent+1)
		m := pub.messages()[sent]
		want := Rendered{
			Table: "public.orders", ID: m.RowID, Kind: c.kind, Destination: c.destination, EventID: m.EventID, Group: m.Group, DedupID: m.DedupID,
			DelaySeconds: m.Delay.Seconds(), Attributes: m.Attributes, Body: m.Body, Bytes: len(m.Body),
		}
		require.Equal(t, want, before[i])
		require.Equal(t, want, f.render(m.RowID), "settled or not")
	}
}

func TestRenderTakesTheGenerationOfARepublish(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	id := f.ids(insertEvents, "f", "k", 1)[0]
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now()`)
	first := f.render(id)
	_, err := f.relay.Tables()[0].Republish(t.Context(), f.conn, Selection{IDs: []string{id}}, false)
	require.NoError(t, err)
	again := f.render(id)
	require.Equal(t, first.DedupID+":"+f.one(`SELECT generation::text FROM pgrelay.failures`), again.DedupID)
}

func TestRenderSaysWhyARowCanNeverBeSent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	insert := `INSERT INTO pgrelay.outbox_events (event_type, payload, headers) VALUES ($1, $2, $3) RETURNING id::text`
	for name, c := range map[string]struct {
		kind, payload, headers string
		reason                 string
		body                   string
	}{
		"no route":                {"strange", `1`, `{}`, "unknown_kind", ""},
		"no message":              {"q", `1`, `[]`, "malformed_headers", ""},
		"refused by its receiver": {"q", `"refused"`, `{}`, "empty_body", `"refused"`},
	} {
		r := f.render(f.one(insert, c.kind, c.payload, c.headers))
		require.NotNil(t, r.Rejection, name)
		require.Equal(t, c.reason, r.Rejection.Reason, name)
		require.NotEmpty(t, r.Rejection.Detail, name)
		require.Equal(t, c.body, r.Body, name)
	}
}

func TestRenderOfARowThatIsNotThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	for _, id := range []string{"4711", "many", ""} {
		_, err := f.relay.Tables()[0].Render(t.Context(), f.conn, id, f.relay.cfg.Destinations)
		var missing *NotFoundError
		require.ErrorAs(t, err, &missing, id)
	}
}
