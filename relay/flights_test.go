package relay

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFlightsLetEachIDOutOnceAndCountWhatIsIn(t *testing.T) {
	t.Parallel()
	table := &Table{Name: "t", sinks: []int{0}}
	rapid.Check(t, func(t *rapid.T) {
		freed := 0
		f := newFlights(func() { freed++ })
		in := map[string]*delivery{}
		asked := map[string]bool{}
		id := func() string { return strconv.Itoa(rapid.IntRange(1, 12).Draw(t, "id")) }
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				n := id()
				free := f.split(table, []want{{id: n, source: sourceStream}})
				if in[n] != nil {
					require.Empty(t, free, "an id in flight is never claimed")
					return
				}
				require.Len(t, free, 1)
				key := strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "key"))
				d := &delivery{table: table, claim: int64(rapid.IntRange(1, 4).Draw(t, "claim")), size: 10, row: Row{ID: n, OrderingKey: &key}, line: "t\x00" + key}
				f.add([]*delivery{d})
				in[n] = d
			},
			"asked by the poller": func(t *rapid.T) {
				n := id()
				f.split(table, []want{{id: n, source: sourcePoller}})
				asked[n] = in[n] != nil
			},
			"remove": func(t *rapid.T) {
				n := id()
				d := in[n]
				if d == nil {
					require.Empty(t, f.remove([]*delivery{{table: table, row: Row{ID: n}}}), "a delivery that isn't the one in flight changes nothing")
					return
				}
				require.Empty(t, f.remove([]*delivery{{table: table, row: Row{ID: n}}}))
				before := freed
				again := f.remove([]*delivery{d})
				require.Equal(t, asked[n], len(again) == 1, "it is asked for again if the poller asked meanwhile")
				require.Greater(t, freed, before)
				delete(in, n)
				delete(asked, n)
			},
			"": func(t *rapid.T) {
				rows, bytes := f.inFlight()
				require.Len(t, in, rows)
				require.EqualValues(t, 10*rows, bytes)
				lines, held := map[lineKey]bool{}, f.held(table)
				for _, d := range in {
					lines[d.lineKey()] = true
					i := slices.Index(held.ids, d.row.ID)
					require.GreaterOrEqual(t, i, 0)
					require.Equal(t, d.claim, held.claims[i])
					require.Equal(t, d.epoch, held.epochs[i])
				}
				for _, key := range []string{"0", "1", "2"} {
					k := lineKey{table, key, 0}
					require.Equal(t, lines[k], f.hasLine(k))
				}
				require.Len(t, held.ids, len(in))
				select {
				case <-f.landed():
					require.Empty(t, in)
				default:
					require.NotEmpty(t, in)
				}
			},
		})
	})
}
