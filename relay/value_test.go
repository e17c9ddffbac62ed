package relay

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pgrelay/internal/pgtest"
)

func ptr(text string) *string { return &text }

func jsonOf(t require.TestingT, sqlType string, text *string) string {
	value, err := sqlValue(sqlType, text)
	require.NoError(t, err)
	printed, err := toJSON(value)
	require.NoError(t, err)
	return printed
}

func TestJSONPrintsBySQLType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sqlType string
		text    *string
		want    string
	}{
		{"bigint", ptr("9223372036854775807"), "9223372036854775807"},
		{"numeric", ptr("0.1000000000000000000001"), "0.1000000000000000000001"},
		{"numeric", ptr("NaN"), `"NaN"`},
		{"double precision", ptr("-Infinity"), `"-Infinity"`},
		{"real", ptr("1e+20"), "1e+20"},
		{"boolean", ptr("true"), "true"},
		{"boolean", ptr("f"), "false"},
		{"boolean", nil, "null"},
		{"integer", nil, "null"},
		{"text", nil, "null"},
		{"jsonb", nil, "null"},
		{"jsonb", ptr("null"), "null"},
		{"json", ptr(`{"b": 1e2, "a" :[ ] }`), `{"b": 1e2, "a" :[ ] }`},
		{"jsonb", ptr(`"x"`), `"x"`},
		{"text", ptr("12"), `"12"`},
		{"text", ptr("<a&b>\"\\\n"), `"<a&b>\"\\\n"`},
		{"timestamp with time zone", ptr("infinity"), `"infinity"`},
		{"integer[]", ptr("{1,2}"), `"{1,2}"`},
	} {
		require.Equal(t, c.want, jsonOf(t, c.sqlType, c.text), c.sqlType)
	}
}

func TestJSONOfTextIsValidAndGivesTheTextBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		printed := jsonOf(t, rapid.SampledFrom([]string{"text", "uuid", "numeric"}).Draw(t, "type"), &text)
		require.True(t, json.Valid([]byte(printed)), printed)
		var back any
		decoder := json.NewDecoder(strings.NewReader(printed))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&back))
		if back != json.Number(text) {
			require.Equal(t, text, back)
		}
	})
}

func TestTextThatIsNotUTF8HasNoJSONForm(t *testing.T) {
	t.Parallel()
	_, err := toJSON("caf\xe9")
	require.ErrorIs(t, err, errNotUTF8)
	_, err = sqlValue("json", ptr("{\"a\": \"caf\xe9\"}"))
	require.ErrorIs(t, err, errNotUTF8)
}

func TestJSONAgreesWithPostgreSQL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.New(t).URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	for _, value := range []string{
		"32767::smallint", "(-2147483648)::integer", "9223372036854775807::bigint", "1e30::numeric", "1e-30::numeric", "100.00::numeric(9,2)",
		"'NaN'::numeric", "'-Infinity'::float8", "'Infinity'::float8", "1e300::float8", "1e-7::real", "'NaN'::real", "(-0.0)::float8",
		"true", "false", "NULL::boolean", "NULL::integer", "NULL::jsonb", "'x<>&'::text", `'{"b": 1.10, "a": [1, {}]}'::jsonb`,
		`'{"b" : 1.10,"a":[ ]}'::json`, `'"s"'::jsonb`, "'null'::jsonb", "'7'::varchar(3)", "7::oid",
	} {
		var sqlType, want string
		var text *string
		require.NoError(t, conn.QueryRow(ctx, "SELECT format_type(pg_typeof(v), -1), v::text, COALESCE(to_json(v)::text, 'null') FROM (SELECT "+value+") AS s(v)").
			Scan(&sqlType, &text, &want))
		require.Equal(t, want, jsonOf(t, sqlType, text), value)
	}
}

func FuzzJSONValueKeepsStoredText(f *testing.F) {
	for _, seed := range []string{`{"a": [1, 2.50, {"b": null}], "c": {}}`, `[ ]`, `"x"`, `{"a":1}}`, `{"a" 1}`, "[1,]", "{\"\xff\":1}", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, err := jsonValue(text)
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		printed, err := toJSON(value)
		require.NoError(t, err)
		if _, whole := value.(verbatim); whole {
			require.Equal(t, text, printed)
		}
		require.Equal(t, strings.Trim(text, " \t\r\n"), strings.Trim(printed, " \t\r\n"))
	})
}
