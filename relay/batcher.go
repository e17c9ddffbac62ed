package relay

import "time"

// A partial batch leaves at once while fewer than fewCalls are in flight. With four
// of them one ends every quarter of a round trip, so a row waits an eighth of it on
// average, while partial calls are bounded to four per round trip: at 5 ms that is 800 calls
// a second, a tenth of a core, where one call a row would be the row rate.
const fewCalls = 4

// patience bounds that wait, so that a few calls that hang until their timeout delay
// nobody while there is room for more; it allows 200 partial calls a second at most.
const patience = 5 * time.Millisecond

// fill says how many rows at the head of the queue the next call takes, and whether
// waiting for more rows is pointless because one more would not go with them. A row whose last outcome
// was unknown goes alone: what cuts the connection is then known.
func fill(q *ring, limits Limits) (n int, full bool) {
	bytes := 0
	for n < q.len() {
		it := q.at(n)
		alone := it.row.Unknowns > 0
		if n > 0 && (alone || limits.Bytes > 0 && bytes+it.bytes > limits.Bytes) {
			return n, true
		}
		n++
		bytes += it.bytes
		if alone || n >= limits.Messages {
			return n, true
		}
	}
	return n, false
}

// departure is when a partial batch leaves. first is when its first row was
// enqueued, held since when a partial batch is held back.
func departure(linger time.Duration, inFlight int, first, held time.Time) time.Time {
	switch {
	case linger > 0:
		return first.Add(linger)
	case inFlight < fewCalls:
		return first
	default:
		return held.Add(patience)
	}
}
