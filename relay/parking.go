package relay

import (
	"container/heap"
	"strconv"
	"time"
)

// parking keeps ids that are not to be asked for yet: until a time, or until their line settles. Of a line only
// the first ids are asked for when its time comes, as none of the others can go before them. It has no lock.
type parking struct {
	ids    map[string]bool
	times  parkHeap[*parked]
	lines  map[lineKey]*parked
	places int64
}

// parked is an id, or a line of them.
type parked struct {
	want
	at    time.Time
	line  lineKey
	ids   *parkHeap[*place] // nil for a single id
	index int
}

// place is an id in its line.
type place struct {
	want
	at int64
}

// lineRetry is how many ids of a line are asked for at a time while nothing is heard of it: its settling
// wakes it, so the time is only for a row that somebody else held.
const lineRetry = 50

func newParking() parking {
	return parking{
		ids: map[string]bool{}, lines: map[lineKey]*parked{},
		times: parkHeap[*parked]{
			less:  func(a, b *parked) bool { return a.at.Before(b.at) },
			moved: func(p *parked, i int) { p.index = i },
		},
	}
}

func (p *parking) len() int           { return len(p.ids) }
func (p *parking) has(id string) bool { return p.ids[id] }

// add parks an id until a time, together with its line if it has one.
func (p *parking) add(w want, at time.Time, line *lineKey) {
	if p.ids[w.id] {
		return
	}
	p.ids[w.id] = true
	if line == nil {
		heap.Push(&p.times, &parked{want: w, at: at})
		return
	}
	l := p.lines[*line]
	if l == nil {
		l = &parked{line: *line, at: at, ids: &parkHeap[*place]{
			less: func(a, b *place) bool { return a.at < b.at }, moved: func(*place, int) {},
		}}
		p.lines[*line] = l
		heap.Push(&p.times, l)
	}
	heap.Push(l.ids, &place{w, p.place(w.id)})
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
		return nil
	}
	for ; n > 0 && l.ids.Len() > 0; n-- {
		w := heap.Pop(l.ids).(*place).want
		delete(p.ids, w.id)
		wants = append(wants, w)
	}
	if l.ids.Len() == 0 {
		delete(p.lines, line)
		heap.Remove(&p.times, l.index)
	}
	return wants
}

// takeDue takes the ids whose time has come. What a line keeps is due a second later.
func (p *parking) takeDue(now time.Time) (wants []want) {
	for p.times.Len() > 0 && !p.times.items[0].at.After(now) {
		first := p.times.items[0]
		if first.ids == nil {
			heap.Pop(&p.times)
			delete(p.ids, first.id)
			wants = append(wants, first.want)
			continue
		}
		first.at = now.Add(time.Second)
		heap.Fix(&p.times, first.index)
		wants = append(wants, p.takeLine(first.line, lineRetry)...)
	}
	return wants
}

// next is the earliest time, zero if nothing waits.
func (p *parking) next() time.Time {
	if p.times.Len() == 0 {
		return time.Time{}
	}
	return p.times.items[0].at
}

// parkHeap is a heap.Interface over a slice; moved tells an item its index.
type parkHeap[T any] struct {
	items []T
	less  func(a, b T) bool
	moved func(item T, index int)
}

// Len implements heap.Interface.
func (h *parkHeap[T]) Len() int { return len(h.items) }

// Less implements heap.Interface.
func (h *parkHeap[T]) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }

// Swap implements heap.Interface.
func (h *parkHeap[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.moved(h.items[i], i)
	h.moved(h.items[j], j)
}

// Push implements heap.Interface.
func (h *parkHeap[T]) Push(x any) {
	h.items = append(h.items, x.(T))
	h.moved(x.(T), len(h.items)-1)
}

// Pop implements heap.Interface.
func (h *parkHeap[T]) Pop() any {
	var none T
	last := len(h.items) - 1
	item := h.items[last]
	h.items[last] = none
	h.items = h.items[:last]
	return item
}
