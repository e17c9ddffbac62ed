package relay

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pgrelay/internal/config"
)

var (
	testColumns = []Column{{Name: "id", Type: "bigint"}, {Name: "name", Type: "text"}, {Name: "ordering_key", Type: "text"}, {Name: "payload", Type: "jsonb"}}
	bigintKey   = Column{Name: "id", Type: "bigint", NotNull: true}
	uuidKey     = Column{Name: "id", Type: "uuid", NotNull: true}
)

func newTestBuilder(t require.TestingT, routes ...config.Route) *builder {
	b, err := newBuilder("public.bookings", routes, testColumns, bigintKey)
	require.NoError(t, err)
	return b
}

func outboxRow(change func(*Row)) *Row {
	row := &Row{ID: "7", Kind: "BOOKED", Payload: ptr(`{"a": 1}`), EventID: ptr("e-1"), Values: map[string]*string{}}
	if change != nil {
		change(row)
	}
	return row
}

func requireRejection(t *testing.T, err error, reason, detail string) {
	t.Helper()
	var rejection *Rejection
	require.ErrorAs(t, err, &rejection)
	require.Equal(t, reason, rejection.Reason)
	require.Contains(t, rejection.Detail, detail)
}

func TestRowWithoutTemplatesGoesOutAsStored(t *testing.T) {
	t.Parallel()
	payload := `{"big": 123456789012345678901234567890, "html": "<>&", "z": 1.00, "a": "😀"}`
	m, err := newTestBuilder(t, config.Route{}).build(0, outboxRow(func(r *Row) {
		r.Payload = &payload
		r.Headers = ptr(`{"trace": "t", "tries": 1.50, "urgent": true, "gone": null}`)
		r.OrderingKey = ptr("k")
	}), false)
	require.NoError(t, err)
	require.Equal(t, &Message{
		Table: "public.bookings", RowID: "7", EventID: "e-1", Kind: "BOOKED", Body: payload,
		Attributes: []Attribute{{"event_id", "e-1"}, {"event_type", "BOOKED"}, {"trace", "t"}, {"tries", "1.50"}, {"urgent", "true"}},
	}, m)
}

func TestTemplatesOfARouteMakeTheMessage(t *testing.T) {
	t.Parallel()
	b := newTestBuilder(t, config.Route{}, config.Route{
		Body: `{"id":{{json .id}},"name":{{json .name}}}`, Group: "{{.payload.tenant}}", DedupID: "d-{{.id}}", Delay: "{{.payload.wait}}",
		Attributes: map[string]string{"b": "{{.name}}", "a": "1"},
	})
	require.Equal(t, []string{"id", "name", "payload"}, b.fields())
	m, err := b.build(1, outboxRow(func(r *Row) {
		r.Kind = ""
		r.Headers = ptr(`{"b": "header", "c": "3"}`)
		r.Values = map[string]*string{"id": ptr("7"), "name": ptr("N"), "payload": ptr(`{"tenant": "t1", "wait": "90s"}`)}
	}), true)
	require.NoError(t, err)
	require.Equal(t, &Message{
		Table: "public.bookings", RowID: "7", EventID: "e-1", Body: `{"id":7,"name":"N"}`, Group: "t1", DedupID: "d-7", Delay: 90 * time.Second,
		Attributes: []Attribute{{"event_id", "e-1"}, {"b", "N"}, {"c", "3"}, {"a", "1"}},
	}, m)
}

func TestEventIDIsTheColumnElseAUUIDKeyElseTableAndKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key     Column
		eventID *string
		want    string
	}{
		{bigintKey, ptr("e-1"), "e-1"},
		{uuidKey, ptr("e-1"), "e-1"},
		{bigintKey, nil, "public.bookings:7"},
		{bigintKey, ptr(""), "public.bookings:7"},
		{uuidKey, nil, "7"},
	} {
		b, err := newBuilder("public.bookings", []config.Route{{}}, testColumns, c.key)
		require.NoError(t, err)
		m, err := b.build(0, outboxRow(func(r *Row) { r.EventID = c.eventID }), true)
		require.NoError(t, err)
		require.Equal(t, c.want, m.EventID)
		require.Equal(t, c.want, m.Attributes[0].Value)
		require.Equal(t, c.want, m.DedupID)
	}
}

func TestGroupIsTheOrderingKeyOnlyWhereOrderIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		template string
		key      *string
		fifo     bool
		want     string
	}{
		{"", ptr("k"), true, "k"},
		{"", ptr("k"), false, ""},
		{"", nil, true, "e-1"},
		{"", ptr(""), true, "e-1"},
		{"{{.name}}", ptr("k"), true, "n"},
		{"{{.name}}", ptr("k"), false, "n"},
		{"{{.ordering_key}}", nil, true, "e-1"},
		{"{{.ordering_key}}", nil, false, ""},
		{"two words", nil, false, sqsID("two words")},
	} {
		m, err := newTestBuilder(t, config.Route{Group: c.template}).build(0, outboxRow(func(r *Row) {
			r.OrderingKey = c.key
			r.Values = map[string]*string{"name": ptr("n"), "ordering_key": c.key}
		}), c.fifo)
		require.NoError(t, err)
		require.Equal(t, c.want, m.Group, "%+v", c)
	}
}

func TestGroupIsKeyLooksThroughSpacing(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]bool{
		"": true, "{{.ordering_key}}": true, "{{  .ordering_key }}": true, "{{- .ordering_key -}}": true,
		"{{.name}}": false, "x{{.ordering_key}}": false, "{{.ordering_key}} ": false, "{{.ordering_key}}{{.name}}": false, "{{json .ordering_key}}": false,
	} {
		require.Equal(t, want, newTestBuilder(t, config.Route{Group: template}).groupIsKey(0, "ordering_key"), template)
	}
	require.True(t, newTestBuilder(t, config.Route{Group: "{{.name}}"}).groupIsKey(0, "name"))
	require.False(t, newTestBuilder(t, config.Route{Group: "{{.ordering_key}}"}).groupIsKey(0, "name"))
	require.False(t, newTestBuilder(t, config.Route{Group: "{{.ordering_key}}"}).groupIsKey(0, ""))
}

func TestRepublishGetsADedupIDOfItsOwn(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 128)
	for _, c := range []struct {
		eventID    string
		generation int64
		want       string
	}{
		{"e-1", 0, "e-1"},
		{"e-1", 3, "e-1:3"},
		{long, 0, long},
		{long, 3, sqsID(long + ":3")},
		{"é", 3, sqsID("é:3")},
	} {
		row := outboxRow(func(r *Row) { r.EventID, r.Generation = &c.eventID, c.generation })
		m, err := newTestBuilder(t, config.Route{}).build(0, row, true)
		require.NoError(t, err)
		require.Equal(t, c.want, m.DedupID)
		m, err = newTestBuilder(t, config.Route{}).build(0, row, false)
		require.NoError(t, err)
		require.Empty(t, m.DedupID)
	}
	m, err := newTestBuilder(t, config.Route{DedupID: "{{.name}}"}).build(0, outboxRow(nil), true)
	require.NoError(t, err)
	require.Equal(t, "e-1", m.DedupID, "an empty one would make all such messages duplicates of each other")
}

// These values are for ever: see sqsID.
func TestIDsThatSQSRefusesAreHashedTheSameWayForEver(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"order-1":                            "order-1",
		"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
		strings.Repeat("a", 128):             strings.Repeat("a", 128),
		strings.Repeat("a", 129):             "sha256:c12cb024a2e5551cca0e08fce8f1c5e314555cc3fef6329ee994a3db752166ae",
		"two words":                          "sha256:a03f1d611645eb53ad16c1af546ca0792dc884505bab57ede80f4dad6b911d3a",
		"é":                                  "sha256:4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c",
		"":                                   "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"a\n":                                "sha256:87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7",
	} {
		require.Equal(t, want, sqsID(id))
	}
}

func TestIDsAreAlwaysWhatSQSTakesAndStayApart(t *testing.T) {
	t.Parallel()
	id := rapid.OneOf(rapid.String(), rapid.StringMatching("[ -~]{120,140}"))
	rapid.Check(t, func(t *rapid.T) {
		a, b := id.Draw(t, "a"), id.Draw(t, "b")
		require.Regexp(t, `^[!-~]{1,128}$`, sqsID(a))
		require.Equal(t, a == b, sqsID(a) == sqsID(b))
	})
}

func TestDelayIsSecondsOrADuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 0, " ": 0, "0": 0, "900": 900 * time.Second, " 5 ": 5 * time.Second, "1m30s": 90 * time.Second, "15m": 15 * time.Minute} {
		m, err := newTestBuilder(t, config.Route{Delay: "{{.name}}"}).build(0, outboxRow(func(r *Row) { r.Values["name"] = &text }), false)
		require.NoError(t, err, text)
		require.Equal(t, want, m.Delay, text)
	}
	for _, text := range []string{"901", "-1", "1.5", "16m", "-1s", "soon", "99999999999999999999", "NaN"} {
		_, err := newTestBuilder(t, config.Route{Delay: "{{.name}}"}).build(0, outboxRow(func(r *Row) { r.Values["name"] = &text }), false)
		requireRejection(t, err, "malformed_delay", "900")
		require.NotContains(t, err.Error(), "soon")
	}
}

func TestMalformedRowIsRejectedWithItsReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		route          config.Route
		change         func(*Row)
		reason, detail string
	}{
		"no payload":      {config.Route{}, func(r *Row) { r.Payload = nil }, "no_payload", "NULL"},
		"template":        {config.Route{Body: "{{.payload.title}}"}, func(r *Row) { r.Values["payload"] = ptr(`{}`) }, "template_failed", `body: there is no "title"`},
		"which template":  {config.Route{Attributes: map[string]string{"x": "{{.payload.title}}"}}, func(r *Row) { r.Values["payload"] = nil }, "template_failed", `attributes.x: "title" is asked of NULL`},
		"headers list":    {config.Route{}, func(r *Row) { r.Headers = ptr(`[1]`) }, "malformed_headers", "not a JSON object"},
		"headers text":    {config.Route{}, func(r *Row) { r.Headers = ptr(`"x"`) }, "malformed_headers", "not a JSON object"},
		"nested header":   {config.Route{}, func(r *Row) { r.Headers = ptr(`{"a": "b", "n": {}}`) }, "malformed_headers", `"n" is an object or array`},
		"own attribute":   {config.Route{}, func(r *Row) { r.Headers = ptr(`{"event_id": "x"}`) }, "malformed_headers", "event_id"},
		"own event_type":  {config.Route{}, func(r *Row) { r.Kind = ""; r.Headers = ptr(`{"event_type": "x"}`) }, "malformed_headers", "event_type"},
		"empty header":    {config.Route{}, func(r *Row) { r.Headers = ptr(`{"h": ""}`) }, "empty_attribute", `"h"`},
		"empty attribute": {config.Route{Attributes: map[string]string{"a": "{{.name}}"}}, nil, "empty_attribute", `"a"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newTestBuilder(t, c.route).build(0, outboxRow(c.change), false)
			requireRejection(t, err, c.reason, c.detail)
		})
	}
	_, err := newTestBuilder(t, config.Route{}).build(-1, outboxRow(func(r *Row) { r.Kind = strings.Repeat("é", 10_000) }), false)
	requireRejection(t, err, "no_route", `"ééé`)
	require.Less(t, len(err.Error()), 300)
}

func TestBodyMayBeEmptyForTheDestinationToJudge(t *testing.T) {
	t.Parallel()
	m, err := newTestBuilder(t, config.Route{Body: "{{.name}}"}).build(0, outboxRow(func(r *Row) { r.Payload = nil }), false)
	require.NoError(t, err)
	require.Empty(t, m.Body)
}

func TestJSONNullHeadersAreNone(t *testing.T) {
	t.Parallel()
	for _, headers := range []*string{nil, ptr("null"), ptr("{}"), ptr(`{"a": null}`)} {
		got, err := decodeHeaders(headers)
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

func TestBuilderNamesEveryProblemWithLineAndKey(t *testing.T) {
	t.Parallel()
	_, err := newBuilder("public.bookings", []config.Route{
		{Line: 12, Body: "{{.nmae}}", Group: "{{.id", Attributes: map[string]string{"event_id": "x", "empty": "", "ok": "{{.id}}"}},
		{Line: 20, Delay: "{{.payload}}", DedupID: "{{json}}"},
	}, testColumns, bigintKey)
	require.Error(t, err)
	for _, want := range []string{
		`line 12: body: unknown column "nmae"; did you mean "name"?`, "line 12: group: template: ", "line 12: attributes.empty: ",
		"line 12: attributes.event_id: ", "line 20: dedup_id: ",
	} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 5)
}

func TestLaterHeaderOfANameReplacesTheEarlier(t *testing.T) {
	t.Parallel()
	m, err := newTestBuilder(t, config.Route{}).build(0, outboxRow(func(r *Row) { r.Headers = ptr(`{"a": 1, "b": 2, "a": 3}`) }), false)
	require.NoError(t, err)
	require.Equal(t, []Attribute{{"a", "3"}, {"b", "2"}}, m.Attributes[2:])
}

func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{`{"a": "b", "n": 1.50, "t": true, "z": null}`, `{"a": {}}`, `[]`, `{"a":1}{}`, `{"a" 1}`, `{"a":1,}`, `{1:2}`, "{\"\xff\":1}", "null", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		headers, err := decodeHeaders(&text)
		var members map[string]json.RawMessage
		whole := utf8.ValidString(text) && json.Unmarshal([]byte(text), &members) == nil
		if !whole {
			require.Error(t, err)
			return
		}
		var scalars, texts = true, map[string]string{}
		for name, raw := range members {
			switch raw[0] {
			case '{', '[':
				scalars = false
			case '"':
				var s string
				require.NoError(t, json.Unmarshal(raw, &s))
				texts[name] = s
			case 'n':
			default:
				texts[name] = string(raw)
			}
		}
		if err != nil {
			requireRejection(t, err, "malformed_headers", "object")
			return
		}
		require.True(t, scalars)
		last := map[string]string{}
		for _, header := range headers {
			last[header.Name] = header.Value
		}
		for name, want := range texts {
			require.Equal(t, want, last[name], fmt.Sprintf("header %q", name))
		}
	})
}
