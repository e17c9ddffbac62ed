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
	m.looked(lookResult{highest: "9", xmin: 100, xmax: 110})
	require.Empty(t, m.at)
	m.looked(lookResult{highest: "12", xmin: 109, xmax: 120})
	require.Empty(t, m.at, "a writer below 110 still runs")
	m.looked(lookResult{highest: "15", xmin: 110, xmax: 130})
	require.Equal(t, "9", m.at)
	m.looked(lookResult{highest: "20", xmin: 131, xmax: 140})
	require.Equal(t, "15", m.at)
}

// TestNoRowIsEverPassedOver plays writers that take an id early and commit late against looks from the mark: each committed row
// must be seen by a look after its commit, or by one from the beginning once its destination, which was closed then, takes rows again.
func TestNoRowIsEverPassedOver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type row struct {
			id     int
			closes bool // of the destination that is closed at times
		}
		type writer struct {
			xid int
			row
		}
		var m mark
		var running []writer
		var committed []row // pending
		xid, id := 1, 0
		top := 0                       // the highest id that was ever committed: that of the whole table, whatever is pending
		closed, missed := false, false // missed: a look from the beginning follows when it opens
		see := func(all bool) {
			committed = slices.DeleteFunc(committed, func(r row) bool { return all || !r.closes })
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				xid, id = xid+1, id+1
				running = append(running, writer{xid, row{id, rapid.Bool().Draw(t, "closes")}})
			case 1:
				if len(running) > 0 {
					i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
					committed = append(committed, running[i].row)
					top = max(top, running[i].id)
					running = slices.Delete(running, i, i+1)
				}
			case 2:
				from := 0
				if m.at != "" {
					_, err := fmt.Sscan(m.at, &from)
					require.NoError(t, err)
				}
				r := lookResult{xmin: uint64(xid + 1), xmax: uint64(xid + 1)}
				for _, w := range running {
					r.xmin = min(r.xmin, uint64(w.xid))
				}
				for _, r := range committed {
					if !r.closes || !missed {
						require.Greater(t, r.id, from, "a pending row lies below the mark")
					}
				}
				missed = missed || closed
				see(!closed) // and they are on their way
				if top > 0 {
					r.highest = fmt.Sprint(top)
				}
				m.looked(r)
			case 3:
				if closed = !closed; !closed && missed {
					see(true)
					missed = false
				}
			}
		}
	})
}
