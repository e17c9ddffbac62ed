package relay

import (
	"cmp"
	"container/heap"
	"slices"
	"strconv"
	"time"
)

// parking keeps ids that are not to be asked for yet: until a time, or until their line settles. Of a line only
// the first ids are asked for when its time comes, as none of the others can go before them; and only the first lineKept
// are kept at all, so that a hot key leaves room for the others. It has no lock.
type parking struct {
	bound  int
	ids    map[string]bool
	times  parkHeap
	lines  map[lineKey]*parked
	places int64
	more   map[lineKey]bool // lines of which ids were let go
	dry    []lineKey        // of these, lines whose first ids the table is to be asked for
}

// parked is an id, or a line of them.
type parked struct {
	want
	at    time.Time
	line  lineKey
	ids   []place // in their order; nil for a single id
	index int
}

// place is an id in its line.
type place struct {
	want
	at int64
}

const (
	// lineRetry is how many ids of a line are asked for at a time while nothing is heard of it: its settling
	// wakes it, so the time is only for a row that somebody else held.
	lineRetry = 50
	// lineKept is several runs, so that a hot key asks the table for its next ids once in ten claims.
	lineKept = 10 * lineRun
)

func newParking(bound int) parking {
	return parking{
		bound: bound, ids: map[string]bool{}, lines: map[lineKey]*parked{}, more: map[lineKey]bool{},
	}
}

func (p *parking) len() int           { return len(p.ids) }
func (p *parking) has(id string) bool { return p.ids[id] }

// add parks an id until a time, together with its line if it has one. What there is no room for is let go: the last of its
// line, for which the table will be asked when the line has run dry or none of what is kept can go, or else the id itself, which is left to the sweep.
func (p *parking) add(w want, at time.Time, line *lineKey) {
	if p.ids[w.id] {
		return
	}
	full := len(p.ids) >= p.bound
	if line == nil {
		if !full {
			p.ids[w.id] = true
			heap.Push(&p.times, &parked{want: w, at: at})
		}
		return
	}
	l := p.lines[*line]
	if l == nil {
		if full {
			return
		}
		l = &parked{line: *line, at: at}
		p.lines[*line] = l
		heap.Push(&p.times, l)
	}
	p.ids[w.id] = true
	n := place{w, p.place(w.id)}
	i, _ := slices.BinarySearchFunc(l.ids, n, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	l.ids = slices.Insert(l.ids, i, n)
	if last := len(l.ids) - 1; full || last >= lineKept {
		delete(p.ids, l.ids[last].id)
		l.ids = l.ids[:last]
		p.more[*line] = true
		if i == last {
			return // it is not kept: nothing is to be asked for sooner
		}
	}
	if at.Before(l.at) {
		l.at = at
		heap.Fix(&p.times, l.index)
	}
}

// place is where an id stands in its line: integer keys are the order themselves, others stand as they came. It
// decides what is asked for first, never what goes first.
func (p *parking) place(id string) int64 {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return n
	}
	p.places++
	return p.places
}

// takeLine takes up to n ids of a line, the first ones.
func (p *parking) takeLine(line lineKey, n int) (wants []want) {
	l := p.lines[line]
	if l == nil {
		p.ask(line)
		return nil
	}
	n = min(n, len(l.ids))
	for _, w := range l.ids[:n] {
		delete(p.ids, w.id)
		wants = append(wants, w.want)
	}
	l.ids = slices.Delete(l.ids, 0, n)
	if len(l.ids) == 0 {
		delete(p.lines, line)
		heap.Remove(&p.times, l.index)
		p.ask(line)
	}
	return wants
}

// ask has the table asked for the first ids of a line of which ids were let go.
func (p *parking) ask(line lineKey) {
	if p.more[line] {
		delete(p.more, line)
		p.dry = append(p.dry, line)
	}
}

// takeDue takes the ids whose time has come. What a line keeps is due a second later.
func (p *parking) takeDue(now time.Time) (wants []want) {
	for p.times.Len() > 0 && !p.times[0].at.After(now) {
		first := p.times[0]
		if first.ids == nil {
			heap.Pop(&p.times)
			delete(p.ids, first.id)
			wants = append(wants, first.want)
			continue
		}
		first.at = now.Add(time.Second)
		heap.Fix(&p.times, first.index)
		p.ask(first.line) // none of what is kept could go: its first ids may be among those that were let go
		wants = append(wants, p.takeLine(first.line, lineRetry)...)
	}
	return wants
}

// takeDry takes the lines that have run dry although the table has more of them.
func (p *parking) takeDry() []lineKey {
	dry := p.dry
	p.dry = nil
	return dry
}

// next is the earliest time, zero if nothing waits.
func (p *parking) next() time.Time {
	if p.times.Len() == 0 {
		return time.Time{}
	}
	return p.times[0].at
}

// parkHeap is a heap.Interface of what is parked, the earliest first, whose items know their index.
type parkHeap []*parked

// Len implements heap.Interface.
func (h parkHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h parkHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements heap.Interface.
func (h parkHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *parkHeap) Push(x any) {
	p := x.(*parked) //nolint:errcheck // only parking pushes
	p.index = len(*h)
	*h = append(*h, p)
}

// Pop implements heap.Interface.
func (h *parkHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
