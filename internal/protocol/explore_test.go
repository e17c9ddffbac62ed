package protocol

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// result of an exploration.
type result struct {
	states int
	broken violation
	trace  string
}

// came says how a state was reached first; breadth first, so by a shortest way.
type came struct {
	from int32
	by   step
	calm int32 // where a run without faults goes on; -1 at its end
}

// explore visits every state that the scenario can reach. Each must keep the invariants, and from each a run without further
// faults must end with every committed row accounted for.
func (m *model) explore() result {
	start := m.start()
	seed := maphash.MakeSeed()
	seen := map[uint64]int32{maphash.Comparable(seed, start): 0}
	states := []state{start}
	ways := []came{{from: -1, calm: -1}}
	for at := 0; at < len(states); at++ {
		s := states[at]
		best := urgency(255)
		var bad result
		m.next(&s, func(by step, u urgency, t state) {
			hash := maphash.Comparable(seed, t)
			n, known := seen[hash]
			if !known {
				n = int32(len(states))
				seen[hash] = n
				states = append(states, t)
				ways = append(ways, came{from: int32(at), by: by, calm: -1})
				if v := m.judge(&t); v != none && bad.broken == none {
					bad = result{len(states), v, trace(ways, n)}
				}
			}
			if u != optional && u < best {
				best, ways[at].calm = u, n
			}
		})
		if bad.broken != none {
			return bad
		}
	}
	return m.calmRuns(states, ways)
}

// calmRuns follows the run without faults from every state to its end.
func (m *model) calmRuns(states []state, ways []came) result {
	const (
		fresh = iota
		onPath
		good
	)
	colour := make([]uint8, len(states))
	for at := range states {
		var path []int32
		n := int32(at)
		for n >= 0 && colour[n] == fresh {
			colour[n] = onPath
			path = append(path, n)
			n = ways[n].calm
		}
		var v violation
		switch {
		case n < 0:
			v = m.judgeEnd(&states[path[len(path)-1]])
		case colour[n] == onPath:
			v = endless
		}
		if v != none {
			return result{len(states), v, trace(ways, int32(at)) + "  -- from here on no fault --\n" + calmTrace(states, ways, int32(at), m)}
		}
		for _, p := range path {
			colour[p] = good
		}
	}
	return result{states: len(states)}
}

func trace(ways []came, n int32) string {
	var lines []string
	for ; ways[n].from >= 0; n = ways[n].from {
		lines = append(lines, "  "+ways[n].by.String())
	}
	var text strings.Builder
	for k := len(lines) - 1; k >= 0; k-- {
		fmt.Fprintln(&text, lines[k])
	}
	return text.String()
}

func calmTrace(states []state, ways []came, n int32, m *model) string {
	var text strings.Builder
	for k := 0; ways[n].calm >= 0 && k < 40; k++ {
		to := ways[n].calm
		m.next(&states[n], func(by step, u urgency, t state) {
			if u != optional && t == states[to] {
				fmt.Fprintf(&text, "  %s\n", by)
			}
		})
		n = to
	}
	return text.String()
}
