package relay

import "time"

// item is a delivery that waits to be sent.
type item struct {
	*delivery
	bytes int       // as the destination counts it
	since time.Time // when it was enqueued
}

// lines holds the rows that wait. Of each line only the head can be sent; the others
// wait behind it until it is delivered, so two rows of a line are never in flight together.
type lines struct {
	ready ring
	// behind has an entry for each line whose head is ready or in flight.
	behind map[string][]item
	rows   int // in ready and behind
}

func newLines() lines { return lines{behind: map[string][]item{}} }

// add puts a row at the end of its line.
func (l *lines) add(it item) {
	l.rows++
	if it.line != "" {
		rest, busy := l.behind[it.line]
		if busy {
			l.behind[it.line] = append(rest, it)
			return
		}
		l.behind[it.line] = nil
	}
	l.ready.push(it)
}

// take removes the first n sendable rows. Each line of theirs stays busy until done.
func (l *lines) take(n int) []item {
	batch := make([]item, n)
	for i := range batch {
		batch[i] = l.ready.pop()
	}
	l.rows -= n
	return batch
}

// done ends a row's flight. After a delivery the next of the line can be sent, before
// rows that came later: a long line should not queue anew for each of its rows.
// Otherwise the rest of the line is returned; it may not overtake the row that stays.
func (l *lines) done(line string, delivered bool) []*delivery {
	if line == "" {
		return nil
	}
	rest := l.behind[line]
	if delivered && len(rest) > 0 {
		l.ready.pushFront(rest[0])
		rest[0] = item{}
		l.behind[line] = rest[1:]
		return nil
	}
	delete(l.behind, line)
	l.rows -= len(rest)
	return deliveries(rest)
}

// drop takes out all rows that wait, each line in its order. Lines with a row in
// flight stay busy.
func (l *lines) drop() []*delivery {
	all := make([]*delivery, 0, l.rows)
	for l.ready.len() > 0 {
		it := l.ready.pop()
		all = append(all, it.delivery)
		all = append(all, deliveries(l.behind[it.line])...)
		delete(l.behind, it.line)
	}
	for line, rest := range l.behind {
		all = append(all, deliveries(rest)...)
		l.behind[line] = nil
	}
	l.rows = 0
	return all
}

func deliveries(items []item) []*delivery {
	ds := make([]*delivery, len(items))
	for i, it := range items {
		ds[i] = it.delivery
	}
	return ds
}

// ring is a queue that can be entered at its head as well.
type ring struct {
	buf     []item // its length is a power of two
	head, n int
}

func (r *ring) len() int { return r.n }

func (r *ring) at(i int) *item { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring) push(it item) {
	r.grow()
	r.n++
	*r.at(r.n - 1) = it
}

func (r *ring) pushFront(it item) {
	r.grow()
	r.head = (r.head - 1) & (len(r.buf) - 1)
	r.n++
	*r.at(0) = it
}

func (r *ring) pop() item {
	it := *r.at(0)
	*r.at(0) = item{}
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return it
}

func (r *ring) grow() {
	if r.n < len(r.buf) {
		return
	}
	bigger := make([]item, max(16, 2*len(r.buf)))
	for i := range r.n {
		bigger[i] = *r.at(i)
	}
	r.buf, r.head = bigger, 0
}
