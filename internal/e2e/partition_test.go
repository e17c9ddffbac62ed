package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// A network that fails without a word, by what it loses.
var partitions = map[string]direction{
	"in both directions":         toServer | toClient,
	"on the way to the server":   toServer,
	"on the way from the server": toClient,
}

// signed makes each message say which instance sent it, as its environment has it.
const signed = `[{table: pgrelay.outbox_events, routes: [{kind: "*", to: queue, attributes: {by: '${INSTANCE}'}}]}]`

// sentBy counts the messages of an instance.
func (w *world) sentBy(instance string) (n int) {
	for _, m := range w.sqs.Messages(standardQueue) {
		if m.Attributes["by"].Value == instance {
			n++
		}
	}
	return n
}

func TestLeaderThatIsCutOffIsReplacedAndSendsNothingMoreUntilItsTurn(t *testing.T) {
	t.Parallel()
	for name, lost := range partitions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sections{"poller": slowPoller, "outboxes": signed})
			px := newProxy(t, w.db.URL)
			first := w.stream(px.env(), "INSTANCE=first")
			second := w.standBy("INSTANCE=second")
			before := w.insert("q", 100)
			w.settled(0)
			l := w.produce()
			w.flows()

			px.lose(lost)
			second.takesOver()
			sent := w.sentBy("first")
			w.flows()
			w.flows()
			px.restore()
			first.says("lost the lead; standing by")
			w.flows()
			require.Equal(t, sent, w.sentBy("first"), "the first sent something after the second led")

			// And back: nothing that the first left behind is in its way.
			require.Zero(t, second.terminate())
			pgtest.Eventually(t, patience, func() bool { return len(first.logged("leading")) == 2 }, "the first leads again")
			pgtest.Eventually(t, patience, func() bool { return len(first.logged("replication stream started")) == 2 }, "and streams again")
			w.flows()
			l.stop()
			w.settled(0)
			px.cut() // what it left half-open
			px.restore()
			first.stop()
			w.disjoint(before, w.repeats(standardQueue))
		})
	}
}

func TestNetworkThatComesBackFindsTheRelayBack(t *testing.T) {
	t.Parallel()
	for name, lost := range partitions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sections{"poller": slowPoller})
			px := newProxy(t, w.db.URL)
			p := w.stream(px.env())
			before := w.insert("q", 100)
			w.settled(0)
			l := w.produce()
			w.flows()
			px.lose(lost)
			p.says("lost the lead; standing by")
			px.restore()
			began := time.Now()
			w.flows()
			w.took("rows flow", began)
			pgtest.Eventually(t, patience, func() bool { return len(p.logged("replication stream started")) == 2 }, "it streams again")
			w.took("the stream is back", began)
			l.stop()
			w.settled(0)
			px.cut()
			px.restore()
			require.Zero(t, p.terminate())
			w.disjoint(before, w.repeats(standardQueue))
		})
	}
}

func TestSlotThatADeadInstanceHoldsIsTakenWhenTheServerLetsItGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": "{interval: 100ms}", "outboxes": signed})
	w.exec(fmt.Sprintf(`ALTER DATABASE %s SET wal_sender_timeout = 0`, w.db.Name)) // the test says when the server notices
	px := newProxy(t, w.db.URL)
	first := w.stream(px.env(), "INSTANCE=first")
	second := w.standBy("INSTANCE=second")
	l := w.produce()
	w.flows()
	px.lose(toServer | toClient) // its host is gone
	first.kill()
	second.takesOver()
	said := second.says("no replication stream: rows are found by polling; trying again")
	require.Equal(t, "slot_held", said["reason"])
	require.Contains(t, said["error"], "pgrelay stream")
	w.flows()
	require.Empty(t, second.logged("replication slot created"))
	w.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE ` + ownSlot)
	second.says("replication stream started")
	w.flows()
	l.stop()
	w.settled(0)
	px.cut()
	second.stop()
	w.repeats(standardQueue)
}
