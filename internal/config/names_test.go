package config

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParsesTablesAsSQLDoes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Table{
		"outbox":                 {Name: "outbox"},
		"Outbox":                 {Name: "outbox"},
		`"Outbox"`:               {Name: "Outbox"},
		"pgrelay.outbox_events":  {"pgrelay", "outbox_events"},
		`"My Schema"."Tab.le"`:   {"My Schema", "Tab.le"},
		`"a""b".c$1`:             {`a"b`, "c$1"},
		"Größe._x":               {"größe", "_x"},
		`s."` + "a\nb" + `"`:     {"s", "a\nb"},
		strings.Repeat("t", 63):  {Name: strings.Repeat("t", 63)},
		`"."."."`:                {".", "."},
		"ÄB." + `"` + "ÄB" + `"`: {"Äb", "ÄB"}, // only ASCII folds
	} {
		got, err := ParseTable(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestQuotedTablesAreReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[^\x00]{1,15}`)
		want := Table{name.Draw(t, "schema"), name.Draw(t, "name")}
		quote := func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
		got, err := ParseTable(quote(want.Schema) + "." + quote(want.Name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestSlotNameIsTheDatabasesUnlessGiven(t *testing.T) {
	t.Parallel()
	c := Default()
	require.Equal(t, "pgrelay_bookings", c.SlotName("bookings"))
	require.Equal(t, "pgrelay_my_db_b123b9ee", c.SlotName("my-db"), "the name is for ever: a slot has it")
	require.NotEqual(t, c.SlotName("my-db"), c.SlotName("my_db"))
	require.NotEqual(t, c.SlotName("MyDB"), c.SlotName("mydb"))
	c.Replication.Slot = "mine"
	require.Equal(t, "mine", c.SlotName("bookings"))
}

func TestSlotNamesAreValidAndDifferWhereDatabasesDo(t *testing.T) {
	t.Parallel()
	c := Default()
	rapid.Check(t, func(t *rapid.T) {
		database := rapid.OneOf(rapid.StringMatching(`[a-zA-Z_ü-]{1,63}`), rapid.StringMatching(`[ab]{50,63}`))
		one, other := database.Draw(t, "one"), database.Draw(t, "other")
		require.Regexp(t, regexp.MustCompile(`^[a-z0-9_]{1,63}$`), c.SlotName(one))
		require.Equal(t, one == other, c.SlotName(one) == c.SlotName(other))
	})
}

func TestMatchesKinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, kind string
		want          bool
	}{
		{"A", "A", true}, {"A", "a", false}, {"A", "AB", false}, {"A", "", false},
		{"*", "A", true}, {"*", "", true}, {"**", "A", true},
		{"A*", "A", true}, {"A*", "ABC", true}, {"A*", "BA", false}, {"A*", "", false},
		{"*A", "A", true}, {"*A", "BA", true}, {"*A", "AB", false},
		{"A*A", "A", false}, {"A*A", "AA", true}, {"A*A", "ABA", true},
		{"A*B*C", "AxBxC", true}, {"A*B*C", "AxCxB", false}, {"A*BC*BC", "ABC", false}, {"*aab", "aaab", true},
		{"a.c", "abc", false}, {"a?", "ab", false}, {"a_", "ab", false}, {"ü*", "üß", true},
	} {
		require.Equal(t, test.want, MatchKind(test.pattern, test.kind), "%q on %q", test.pattern, test.kind)
	}
}

func TestKindsMatchAsARegularExpressionWould(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{1,6}`).Draw(t, "pattern")
		kind := rapid.StringMatching(`[ab]{1,8}`).Draw(t, "kind")
		re := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
		require.Equal(t, re.MatchString(kind), MatchKind(pattern, kind))
	})
}

// covers is exact: it finds a pattern's kinds all taken if and only if they are.
func TestPatternCoversAnotherIfItMatchesAllOfItsKinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{1,5}`).Draw(t, "pattern")
		other := rapid.StringMatching(`[ab*]{1,4}`).Draw(t, "other")
		all := true
		// c is in neither: a run that only a * takes. Runs of these are enough to tell.
		for _, run := range []string{"", "a", "b", "c", "ab", "ba", "aa", "bb", "cc"} {
			kind := strings.ReplaceAll(other, "*", run)
			all = all && (kind == "" || MatchKind(pattern, kind))
		}
		require.Equal(t, all, covers(pattern, other))
	})
}

func TestSuggestsWhatIsNear(t *testing.T) {
	t.Parallel()
	keys := []string{"table", "columns", "order_by", "routes", "to", "batch_size"}
	for word, want := range map[string]string{
		"tabel": "table", "Table": "table", "route": "routes", "orderBy": "order_by", "order-by": "order_by",
		"batchsize": "batch_size", "ot": "to", "ledger": "", "status": "", "": "", "x": "",
		strings.Repeat("long", 1000): "",
	} {
		require.Equal(t, want, nearest(word, keys), word)
	}
}

func TestConditionsAreCutAtTheirOutermostAnds(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string][]string{
		"a":                               {"a"},
		"a = 1 AND b":                     {"a = 1", "b"},
		" a and\nb\nAnd c ":               {"a", "b", "c"},
		"(a AND b) AND c":                 {"(a AND b)", "c"},
		"a AND b OR c":                    {"a AND b OR c"},
		"a AND (b OR c)":                  {"a", "(b OR c)"},
		"a BETWEEN 1 AND 2 AND b":         {"a BETWEEN 1 AND 2", "b"},
		"CASE WHEN a AND b THEN c END":    {"CASE WHEN a AND b THEN c END"},
		"a = ' AND ' AND b = E'\\' AND '": {"a = ' AND '", "b = E'\\' AND '"},
		`"x AND y" AND b`:                 {`"x AND y"`, "b"},
		"$$ AND $$ = a AND b":             {"$$ AND $$ = a", "b"},
		"a /* AND /* AND */ */ AND b":     {"a /* AND /* AND */ */", "b"},
		"a -- AND\n AND b":                {"a -- AND", "b"},
		"hand AND andy":                   {"hand", "andy"},
		"a AND 'unclosed AND b":           {"a AND 'unclosed AND b"},
		"a[1] AND NOT b":                  {"a[1]", "NOT b"},
	} {
		require.Equal(t, want, SplitAnd(condition), condition)
	}
}
