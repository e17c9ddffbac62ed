package protocol

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// result of an exploration.
type result struct {
	states int
	broken violation
	trace  string
}

// visit is what is kept of a state when its successors are known.
type visit struct {
	from   int32 // the state from which it was reached first; breadth first, so on a shortest way
	by     step
	calm   int32 // where a run without faults goes on; -1 at its end
	calmBy step
	end    violation // what is wrong with it as an end
}

// explore visits every state that the scenario can reach. Each must keep the invariants, and from each a run without further
// faults must end with every committed row accounted for.
//
// States are told apart by a 64-bit hash: that two of a million share one, and one goes unseen, has a chance of 1 in 30 million.
func (m *model) explore() result {
	start := m.start()
	seed := maphash.MakeSeed()
	seen := map[uint64]int32{maphash.Comparable(seed, start): 0}
	visits := []visit{{from: -1, calm: -1}}
	level, at := []state{start}, int32(0)
	for len(level) > 0 {
		var next []state
		for k := range level {
			best, bad := urgency(255), none
			m.next(&level[k], func(by step, u urgency, t state) {
				hash := maphash.Comparable(seed, t)
				n, known := seen[hash]
				if !known {
					n = int32(len(visits))
					seen[hash] = n
					visits = append(visits, visit{from: at, by: by, calm: -1})
					next = append(next, t)
					if bad == none {
						bad = m.judge(&t)
					}
				}
				if u != optional && u < best {
					best, visits[at].calm, visits[at].calmBy = u, n, by
				}
			})
			if bad != none {
				worst := slices.IndexFunc(next, func(t state) bool { return m.judge(&t) != none })
				return result{len(visits), bad, trace(visits, int32(len(visits)-len(next)+worst))}
			}
			if visits[at].calm < 0 {
				visits[at].end = m.judgeEnd(&level[k])
			}
			at++
		}
		level = next
	}
	return calmRuns(visits)
}

// calmRuns follows the run without faults from every state to its end.
func calmRuns(visits []visit) result {
	const (
		fresh = iota
		onPath
		good
	)
	colour := make([]uint8, len(visits))
	for at := range visits {
		var path []int32
		n := int32(at)
		for n >= 0 && colour[n] == fresh {
			colour[n] = onPath
			path = append(path, n)
			n = visits[n].calm
		}
		broken := none
		switch {
		case n < 0:
			broken = visits[path[len(path)-1]].end
		case colour[n] == onPath:
			broken = endless
		}
		if broken != none {
			return result{len(visits), broken, trace(visits, int32(at)) + calmTrace(visits, int32(at))}
		}
		for _, p := range path {
			colour[p] = good
		}
	}
	return result{states: len(visits)}
}

func trace(visits []visit, n int32) string {
	var steps []string
	for ; visits[n].from >= 0; n = visits[n].from {
		steps = append(steps, fmt.Sprintf("  %s\n", visits[n].by))
	}
	slices.Reverse(steps)
	return strings.Join(steps, "")
}

// calmTrace shows a run without faults, which may go in a circle.
func calmTrace(visits []visit, n int32) string {
	text := "  -- from here on no fault --\n"
	for k := 0; visits[n].calm >= 0 && k < 40; k++ {
		text += fmt.Sprintf("  %s\n", visits[n].calmBy)
		n = visits[n].calm
	}
	return text
}
