package relay

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// TestHotKeyMovesWithItsSendsAndNotWithThePoller counts what a key of ten thousand rows asks of the server: some statements for each run
// of the line, none for each row, and not one look.
func TestHotKeyMovesWithItsSendsAndNotWithThePoller(t *testing.T) {
	t.Parallel()
	const rows = 10_000
	f := newFixture(t, toQueue)
	c := counted(f)
	ids := f.ids(insertEvents, "f", "hot", rows)
	f.start()
	f.offer(ids...)
	f.settledWithin(0, 2*time.Minute)
	for i, body := range f.pubs["fifo"].bodies() {
		require.Equal(t, strconv.Itoa(i+1), body)
	}
	require.Len(t, f.pubs["fifo"].messages(), rows)
	f.looks.mu.Lock()
	defer f.looks.mu.Unlock()
	require.Zero(t, f.looks.look, "nothing waits for the poller")
	require.Less(t, c.n.Load(), int64(rows/5), "statements go by runs of the line, and not by rows")
}

// TestCallsOfOtherKeysStayFullBesideAHotKey counts the calls that rows of many keys take behind a long run of one key's.
func TestCallsOfOtherKeysStayFullBesideAHotKey(t *testing.T) {
	t.Parallel()
	const keys, each = 500, 3
	f := newFixture(t, toQueue)
	pub, calls, before := f.pubs["fifo"], 0, 0
	others := func(m *Message) bool { return m.Group != "hot" }
	pub.fault = func(batch []*Message) *Fault { // asked once per call, one call at a time
		if slices.ContainsFunc(batch, others) {
			calls++
			before = len(pub.got)
		}
		return nil
	}
	ids := f.ids(insertEvents, "f", "hot", 3000)
	ids = append(ids, f.ids(freshRows, "k", keys, keys*each)...)
	f.start()
	f.offer(ids...)
	pgtest.Eventually(t, longEnough, func() error {
		if n := len(slices.DeleteFunc(pub.messages(), func(m *Message) bool { return !others(m) })); n < keys*each {
			return fmt.Errorf("%d rows of other keys have arrived", n)
		}
		return nil
	}, "the other keys' rows arrive")
	pub.mu.Lock()
	defer pub.mu.Unlock()
	require.Less(t, before, 3000, "they do not wait for the hot key's end")
	require.LessOrEqual(t, calls, keys*each/5, "calls of ten, but for some at the beginning and the end")
}
