package replication

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A server writes transactions and other WAL, and tells of them by messages that may
// come twice after a reconnect. Whatever the position confirms, the server forgets.
func TestThePositionOnlyGrowsAndNeverPassesRowsThatAreStillToCome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p position
		require.Zero(t, p.confirmed, "an unknown position must not confirm anything")
		var wal pglogrepl.LSN // everything before it has been sent
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			before := p.confirmed
			step := pglogrepl.LSN(rapid.IntRange(1, 100).Draw(t, "bytes"))
			switch rapid.SampledFrom([]string{"transaction", "keepalive", "reconnect"}).Draw(t, "step") {
			case "transaction":
				p.begin()
				for range rapid.IntRange(0, 3).Draw(t, "keepalives") {
					// The server has read on, but this transaction's rows are not all here.
					p.keepalive(wal + step)
					require.Equal(t, before, p.confirmed)
				}
				wal += step
				p.commit(wal)
				require.Equal(t, max(before, wal), p.confirmed)
			case "keepalive":
				wal += step
				p.keepalive(wal)
				require.Equal(t, max(before, wal), p.confirmed)
			case "reconnect":
				// A new server process may know of less, and send it again.
				wal -= min(wal, step)
				p.open = false
			}
			require.GreaterOrEqual(t, p.confirmed, before)
		}
	})
}
