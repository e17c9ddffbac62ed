package relay

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
