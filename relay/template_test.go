package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var testTypes = map[string]string{
	"id": "bigint", "name": "text", "nick": "text", "flag": "boolean", "maybe": "boolean", "price": "numeric",
	"ordering_key": "text", "payload": "jsonb", "odd-name": "text", "String": "text",
}

var testRow = map[string]*string{
	"id": ptr("9007199254740993"), "name": ptr("Zoë <&>"), "nick": nil, "flag": ptr("false"), "maybe": nil, "price": ptr("1.50"),
	"payload":  ptr(`{"a-b": 1.10, "big": 123456789012345678901234567890, "list": ["x", "<y>"], "none": [], "null": null, "yes": true, "sub": {"b": 2, "a": "é"}, "String": "member"}`),
	"odd-name": ptr("odd"), "String": ptr("column"),
}

func renderTestRow(t require.TestingT, text string, values map[string]*string) (string, error) {
	tmpl, err := newRowTemplate("body", text, testTypes)
	require.NoError(t, err)
	row := templateRow{}
	for _, name := range tmpl.fields {
		row[name], err = sqlValue(testTypes[name], values[name])
		require.NoError(t, err)
	}
	return tmpl.render(row)
}

func TestTemplatePrintsStoredText(t *testing.T) {
	t.Parallel()
	payload := *testRow["payload"]
	for text, want := range map[string]string{
		"{{.id}}/{{.name}}/{{.nick}}/{{.price}}/{{.flag}}/{{.maybe}}":               "9007199254740993/Zoë <&>//1.50/false/",
		`{{json .id}} {{json .name}} {{json .nick}} {{json .flag}} {{json .maybe}}`: `9007199254740993 "Zoë <&>" null false null`,
		"{{.payload}}":                                                                             payload,
		`{"data":{{json .payload}}}`:                                                               `{"data":` + payload + `}`,
		"{{with .payload}}{{.}}{{end}}":                                                            payload,
		"{{$p := .payload}}{{printf \"%s\" $p}}":                                                   payload,
		`{{.payload.big}} {{json .payload.big}}`:                                                   "123456789012345678901234567890 123456789012345678901234567890",
		`{{index .payload "a-b"}}`:                                                                 "1.10",
		`{{.payload.sub}} {{json .payload.sub}}`:                                                   `{"b": 2, "a": "é"} {"b": 2, "a": "é"}`,
		`{{.payload.sub.a}} {{json .payload.sub.a}}`:                                               `é "é"`,
		`{{(index .payload "sub").a}}`:                                                             "é",
		`{{json .payload.list}} {{json .payload.none}} {{.payload.none}}`:                          `["x", "<y>"] [] []`,
		`{{range $i, $x := .payload.list}}{{$i}}={{json $x}},{{end}}`:                              `0="x",1="<y>",`,
		`{{range .payload.list}}{{.}}{{$.id}}{{end}}`:                                              "x9007199254740993<y>9007199254740993",
		`{{range $k, $v := .payload.sub}}{{$k}}={{$v}};{{end}}`:                                    "a=é;b=2;",
		`{{range .payload.none}}x{{else}}{{.name}}{{end}}`:                                         "Zoë <&>",
		`{{range index .payload "absent"}}x{{else}}no{{end}}`:                                      "no",
		`{{if .payload.none}}full{{else}}empty{{end}}`:                                             "empty",
		`{{if .payload.yes}}yes{{end}}{{if .payload.null}}no{{end}}{{json .payload.null}}`:         "yesnull",
		`{{if .flag}}yes{{else}}no{{end}} {{if .maybe}}yes{{else}}no{{end}}`:                       "no no",
		`{{eq .maybe false}} {{eq .name "Zoë <&>"}} {{eq .nick ""}} {{eq .id "9007199254740993"}}`: "true true true true",
		`{{len .payload.list}} {{len .payload}} {{len .payload.none}} {{len .nick}}`:               "2 8 0 0",
		`{{index . "odd-name"}}{{index $ "odd-name"}}`:                                             "oddodd",
		`{{.String}} {{.payload.String}}`:                                                          "column member",
		`{{with index .payload "absent"}}{{.}}{{else}}{{.name}}{{end}}`:                            "Zoë <&>",
		`{{index .payload "absent" "deeper"}}|{{json (index .payload "absent")}}`:                  "|null",
		`{{index .payload.list 1}}{{index .payload.list 2}}`:                                       "<y>",
		`{{define "x"}}<{{.a}}{{$.a}}>{{end}}{{template "x" .payload.sub}}`:                        "<éé>",
		`{{slice .name 0 1}}`:                                                                      "Z",
	} {
		got, err := renderTestRow(t, text, testRow)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestTemplateNamesExactlyTheColumnsThatItReads(t *testing.T) {
	t.Parallel()
	tmpl, err := newRowTemplate("body", `{{if .flag}}{{.name}}{{else}}{{with .payload}}{{.title}}{{$.nick}}{{else}}{{index . "odd-name"}}{{end}}{{end}}`+
		`{{range .payload.list}}{{.price}}{{end}}{{$x := .id | json}}{{(json .maybe) | print $x}}`, testTypes)
	require.NoError(t, err)
	require.Equal(t, []string{"flag", "id", "maybe", "name", "nick", "odd-name", "payload"}, tmpl.fields)
}

func TestTemplateIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{{.nmae}}": `unknown column "nmae"; did you mean "name"?`,
		"{{if .flag}}{{json .orderin_key}}{{end}}": `unknown column "orderin_key"; did you mean "ordering_key"?`,
		"{{range .payload.x}}{{$.zzzzzz}}{{end}}":  `unknown column "zzzzzz"`,
		`{{index . "odd_name"}}`:                   `unknown column "odd_name"; did you mean "odd-name"?`,
		"{{with .payload}}{{else}}{{.idd}}{{end}}": `unknown column "idd"; did you mean "id"?`,
		"{{.}}":                      "whole row",
		"{{json $}}":                 "whole row",
		"{{$row := .}}{{$row.name}}": "whole row",
		"{{index . .name}}":          "whole row",
		`{{define "x"}}{{.a}}{{end}}{{template "x" .}}`: "whole row",
		"{{.name":                  "unclosed action",
		"{{jsno .name}}":           `function "jsno" not defined`,
		"{{json .name .id}}":       "wrong number of args",
		`{{eq .flag "true"}}`:      "incompatible types",
		"{{.name.first}}":          "not a JSON object",
		`{{range .name}}{{end}}`:   "neither JSON object nor array",
		`{{printf .name | len 3}}`: "wrong number of args",
	} {
		_, err := newRowTemplate("body", text, testTypes)
		require.ErrorContains(t, err, want, text)
	}
	_, err := newRowTemplate("body", "{{.a1}}{{.b2}}", testTypes)
	require.ErrorContains(t, err, "a1")
	require.ErrorContains(t, err, "b2")
}

func TestTemplateThatFailsOnARowSaysWhyWithoutItsContent(t *testing.T) {
	t.Parallel()
	row := map[string]*string{"name": ptr("SECRET"), "payload": ptr(`{"s": "SECRET", "n": 55555, "l": ["SECRET"]}`)}
	for text, want := range map[string]string{
		"{{.payload.title}}":                                  `there is no "title" (index gives NULL for what may be absent)`,
		"{{.payload.s.deeper}}":                               `"deeper" is asked of a value that is not a JSON object`,
		"{{range .payload.s}}{{end}}":                         "range is asked of a value that is neither JSON object nor array",
		"{{range .payload.n}}{{end}}":                         "range is asked of a value that is neither JSON object nor array",
		`{{index .payload "s" "x"}}`:                          "index is asked of a value that is neither JSON object nor array",
		`{{index .payload.l .payload.s}}`:                     "a JSON array is indexed by an integer",
		"{{slice .payload.s 3 99}}":                           "out of range",
		"{{eq .payload.s true}}":                              "incompatible types",
		"{{len .payload.n | index .payload.l}}{{.payload.x}}": `there is no "x"`,
	} {
		_, err := renderTestRow(t, text, row)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "SECRET", text)
		require.NotContains(t, err.Error(), "55555", text)
	}
	_, err := renderTestRow(t, "{{.payload.title}}", map[string]*string{"payload": nil})
	require.EqualError(t, err, `"title" is asked of NULL`)
}

func TestTemplateStopsAtTheBoundOfItsOutput(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat("1,", 4000) + "1]"
	text := "{{range .payload}}{{range $.payload}}x{{end}}{{end}}"
	_, err := renderTestRow(t, text, map[string]*string{"payload": &list})
	require.ErrorIs(t, err, errTooLong)

	short, err := renderTestRow(t, "{{.name}}", map[string]*string{"name": ptr(strings.Repeat("x", maxRendered))})
	require.NoError(t, err)
	require.Len(t, short, maxRendered)
}

func TestUnknownColumnsAreSuggestedByDistance(t *testing.T) {
	t.Parallel()
	require.Equal(t, "order_id", nearestName("orderid", []string{"created_at", "id", "order_id"}))
	require.Empty(t, nearestName("title", []string{"created_at", "id"}))
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringMatching("[ab]{0,6}").Draw(t, "a"), rapid.StringMatching("[ab]{0,6}").Draw(t, "b")
		d := editDistance(a, b)
		require.Equal(t, d, editDistance(b, a))
		require.Equal(t, a == b, d == 0)
		require.LessOrEqual(t, d, max(len(a), len(b)))
	})
}
