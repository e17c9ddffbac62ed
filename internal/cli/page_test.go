package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"pgrelay/relay"
)

var letters = [][]cell{
	cells("TABLE", "ID", "REASON"),
	cells("pgrelay.outbox_events", 4711, cell{text: strings.Repeat("long ", 20) + "end", style: red}),
}

func TestATableInAFileIsWholeAndPlain(t *testing.T) {
	t.Parallel()
	var p page
	p.table(letters)
	require.Equal(t, "TABLE                  ID    REASON\npgrelay.outbox_events  4711  "+strings.Repeat("long ", 20)+"end\n", p.String())
}

func TestATableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, width := range []int{30, 40, 80} {
		p := page{term: terminal{width: width}}
		p.table(letters)
		for line := range strings.Lines(p.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width)
		}
		require.Contains(t, p.String(), "4711")
		require.Contains(t, p.String(), "…")
	}
}

func TestATableIsNeverCutToNothing(t *testing.T) {
	t.Parallel()
	p := page{term: terminal{width: 3}}
	p.table(letters)
	require.Contains(t, p.String(), "pgrel…  4711  long …\n")
}

func TestTheTextOfAListGoesOnBelowItself(t *testing.T) {
	t.Parallel()
	p := page{term: terminal{width: 32}}
	p.list([][]cell{
		cells("failure", "slot", "the slot belongs to another database"),
		cells("", "", cell{text: "→ pgrelay slot drop --config another.yaml", whole: true}),
		cells("ok"),
	})
	require.Equal(t, strings.TrimPrefix(`
failure  slot  the slot belongs to
               another database
               → pgrelay slot drop --config another.yaml
ok
`, "\n"), p.String())
}

func TestAWordLongerThanItsLineIsBroken(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a", "abcdé", "fgh i"}, wrap("a abcdéfgh i", 5))
}

func TestColoursTakeNoRoom(t *testing.T) {
	t.Parallel()
	rows := [][]cell{cells(cell{text: "ok", style: green}, "a"), cells("failure", "b")}
	p := page{term: terminal{width: 80, color: true}}
	p.list(rows)
	require.Equal(t, "\x1b[32mok\x1b[0m       a\nfailure  b\n", p.String())
}

func TestValuesDoNothingToATerminal(t *testing.T) {
	t.Parallel()
	var p page
	p.table([][]cell{cells("a\x1b[2Jb\n", "tab\there")})
	require.Equal(t, `"a\x1b[2Jb\n"  "tab\there"`+"\n", p.String())
}

func TestTimesAreRelativeAndInTheZoneOfTheReader(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-3 * time.Minute).UTC()
	require.Equal(t, at.Local().Format(time.DateTime)+" (3 minutes ago)", moment(at))
}

func TestAnAgeThatNobodyKnowsIsNotZero(t *testing.T) {
	t.Parallel()
	require.Equal(t, "unknown", oldestText(relay.Counts{Pending: 1}))
	require.Equal(t, "0s", oldestText(relay.Counts{}))
	require.Equal(t, "0s", oldestText(relay.Counts{Pending: 1, Oldest: time.Millisecond}))
	require.Equal(t, "1m3s", oldestText(relay.Counts{Pending: 1, Oldest: 63 * time.Second}))
}
