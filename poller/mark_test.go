package poller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMarkRisesOnlyWhenTheWritersOfTheFirstLookHaveEnded(t *testing.T) {
	t.Parallel()
	var m mark
	m.looked(lookResult{highest: "9", xmin: 100, xmax: 110, whole: true})
	require.Empty(t, m.at)
	m.looked(lookResult{highest: "12", xmin: 109, xmax: 120, whole: true})
	require.Empty(t, m.at, "a writer below 110 still runs")
	m.looked(lookResult{highest: "15", xmin: 110, xmax: 130, whole: true})
	require.Equal(t, "9", m.at)
	m.looked(lookResult{highest: "20", xmin: 131, xmax: 140, whole: true})
	require.Equal(t, "15", m.at)
}

func TestLookThatLeftOutADestinationConfirmsNothing(t *testing.T) {
	t.Parallel()
	var m mark
	m.looked(lookResult{highest: "9", xmin: 100, xmax: 110, whole: true})
	m.looked(lookResult{highest: "12", xmin: 120, xmax: 120})
	m.looked(lookResult{highest: "12", xmin: 121, xmax: 130, whole: true})
	require.Empty(t, m.at)
}

// TestNoRowIsEverPassedOver plays writers that take an id early and commit late against looks from the mark: each committed row
// must be seen by a look after its commit.
func TestNoRowIsEverPassedOver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type writer struct{ xid, id int }
		var m mark
		var running []writer
		var committed []int // pending
		xid, id := 1, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				xid, id = xid+1, id+1
				running = append(running, writer{xid, id})
			case 1:
				if len(running) > 0 {
					i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
					committed = append(committed, running[i].id)
					running = slices.Delete(running, i, i+1)
				}
			case 2:
				from := 0
				if m.at != "" {
					_, err := fmt.Sscan(m.at, &from)
					require.NoError(t, err)
				}
				r := lookResult{xmin: uint64(xid + 1), xmax: uint64(xid + 1), whole: true}
				for _, w := range running {
					r.xmin = min(r.xmin, uint64(w.xid))
				}
				top := 0
				for _, row := range committed {
					require.Greater(t, row, from, "a pending row lies below the mark")
					top = max(top, row)
				}
				committed = nil // seen, and on their way
				if top > 0 {
					r.highest = fmt.Sprint(top)
				}
				m.looked(r)
			}
		}
	})
}
