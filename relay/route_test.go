package relay

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

func kindRoutes(patterns ...string) []config.Route {
	var routes []config.Route
	for _, pattern := range patterns {
		routes = append(routes, config.Route{Kind: pattern})
	}
	return routes
}

func TestRouteCaseQuotesWhatLikeAndLiteralsTakeSpecially(t *testing.T) {
	t.Parallel()
	require.Equal(t, "-1", routeCase(nil, "o.kind"))
	require.Equal(t, `CASE WHEN COALESCE(o.kind, '') COLLATE "C" = 'it''s' THEN 0`+
		` WHEN COALESCE(o.kind, '') COLLATE "C" LIKE E'BOOKING\\_%' THEN 1`+
		` WHEN COALESCE(o.kind, '') COLLATE "C" = E'a\\b' THEN 2`+
		` WHEN COALESCE(o.kind, '') COLLATE "C" LIKE '%' THEN 3 ELSE -1 END`,
		routeCase(kindRoutes("it's", "BOOKING_*", `a\b`, "*"), "o.kind"))
}

func TestMatchKindTakesStarAsAnyRunAndTheRestLiterally(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, kind string
		want          bool
	}{
		{"A", "A", true},
		{"A", "a", false},
		{"A", "AB", false},
		{"A", "", false},
		{"*", "", true},
		{"*", "anything\nat all", true},
		{"A_*", "A_", true},
		{"A_*", "AxB", false},
		{"*_B", "A_B", true},
		{"A*A", "A", false},
		{"A*A", "AA", true},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "acb", false},
		{"*ab*ab*", "ab", false},
		{"%", "x", false},
		{`\*`, `\x`, true},
	} {
		require.Equal(t, c.want, config.MatchKind(c.pattern, c.kind), "%q takes %q", c.pattern, c.kind)
	}
}

// The claim routes in SQL and others in Go: a row must not be told one thing by the one and another by the other.
func TestRouteCaseAndMatchKindAgree(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.New(t).URL
	alphabet := rapid.SampledFrom([]rune(`ab*%_\'"é` + "\n$"))
	text := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(alphabet, 0, 5).Draw(t, "runes")) })
	for _, conforming := range []string{"on", "off"} {
		conn, err := pgx.Connect(ctx, url)
		require.NoError(t, err)
		_, err = conn.Exec(ctx, "SET standard_conforming_strings = "+conforming)
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			// The configuration has no empty pattern.
			patterns := rapid.SliceOfN(text.Filter(func(s string) bool { return s != "" }), 1, 3).Draw(t, "patterns")
			kinds := rapid.SliceOfN(text, 1, 20).Draw(t, "kinds")
			for _, pattern := range patterns { // random kinds alone would hardly ever match
				kinds = append(kinds, strings.ReplaceAll(pattern, "*", text.Draw(t, "run")))
			}
			rows, err := conn.Query(ctx, "SELECT "+routeCase(kindRoutes(patterns...), "kind")+
				" FROM unnest($1::text[]) WITH ORDINALITY u(kind, n) ORDER BY n", kinds)
			require.NoError(t, err)
			got, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.NoError(t, err)
			for i, kind := range kinds {
				want := -1
				for j := len(patterns) - 1; j >= 0; j-- {
					if config.MatchKind(patterns[j], kind) {
						want = j
					}
				}
				require.Equal(t, want, got[i], "%q takes %q", patterns, kind)
			}
		})
		require.NoError(t, conn.Close(ctx))
	}
}

func TestNullKindIsTakenByStarOnly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.New(t).URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	var without, with int
	require.NoError(t, conn.QueryRow(ctx, "SELECT "+routeCase(kindRoutes("A", "A*"), "NULL::text")+", "+
		routeCase(kindRoutes("A", "*"), "NULL::text")).Scan(&without, &with))
	require.Equal(t, -1, without)
	require.Equal(t, 1, with)
}
