package protocol

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	arrival = scenario{name: "rows arrive", keyed: true, rows: 2, stream: true,
		left: budget{total: 1, rollback: 1, lostReply: 1, refuse: 1, reject: 1, lostStamp: 1, cut: 1, crash: 1}}
	calls = scenario{name: "calls and stamps fail", keyed: true, given: true, rows: 2, stream: true,
		left: budget{total: 2, lostReply: 2, refuse: 2, reject: 1, lostStamp: 2, cut: 1, crash: 1}}
	owner = scenario{name: "the owner writes meanwhile", keyed: true, given: true, rows: 2, stream: true,
		left: budget{total: 2, change: 2, settle: 1, rearm: 1, lockedRow: 1, lostStamp: 1, cut: 1, refuse: 1}}
	handOver = scenario{name: "the lead changes", keyed: true, given: true, rows: 1, stream: true, standby: true,
		left: budget{total: 2, freeze: 2, cut: 1, crash: 1, lostStamp: 1, lostReply: 1, change: 1, reject: 1}}
	keyHandOver = scenario{name: "the lead changes within a key", keyed: true, given: true, rows: 2, standby: true,
		left: budget{total: 2, freeze: 1, crash: 1}}
	server = scenario{name: "the server crashes", keyed: true, given: true, rows: 1, standby: true,
		left: budget{total: 2, serverCrash: 1, freeze: 1, crash: 1, lostStamp: 1, reject: 1, change: 1, lostReply: 1}}
	doubtful = scenario{name: "a stamp in doubt outlives its lead", keyed: true, given: true, rows: 2, stream: true,
		left: budget{total: 3, cut: 1, lostStamp: 1, reject: 1}}
	poller = scenario{name: "the poller is alone", rows: 2, lowWater: true,
		left: budget{total: 1, cut: 1, lostStamp: 1, change: 1, lostReply: 1}}
)

var more = flag.Uint("faults", 0, "more faults in each exploration than usual; 1 takes minutes")

func TestProtocolKeepsItsGuarantees(t *testing.T) {
	for _, sc := range []scenario{arrival, calls, owner, handOver, keyHandOver, server, doubtful, poller} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			sc.left.total += uint8(*more)
			start := time.Now()
			r := (&model{scenario: sc}).explore()
			require.Equal(t, none, r.broken, "%s\n%s", r.broken, r.trace)
			t.Logf("%d states in %v", r.states, time.Since(start))
		})
	}
}

func (sc scenario) faults(n uint8) scenario {
	sc.left.total = n
	return sc
}

// A rule that can be taken out without harm would not be one, and a model that doesn't see it missing proves nothing.
// With -v each case prints its shortest counterexample.
func TestProtocolNeedsEachOfItsRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		without rule
		in      scenario
		breaks  violation
	}{
		{"the claim reads the table", claimReadsTheTable, arrival.faults(0), rolledBackSent},
		{"what is not visible yet is asked for again", claimKeepsNotYetVisible, arrival.faults(0), lost},
		{"the claim leaves out what is in flight", claimLeavesOutInFlight, calls.faults(1), repeated},
		{"the claim holds back what is behind in its key", claimHoldsKey, arrival.faults(0), disordered},
		{"a line waits for each delivery", lineWaitsForDelivery, calls.faults(0), disordered},
		{"the lead is fresh before each call", freshBeforeSend, handOver.faults(1), twoSenders},
		{"the stamp is joined to the claims", stampIsFenced, handOver.faults(1), deposedStamp},
		{"the fence names the epoch", fenceNamesEpoch, server.faults(1), deposedStamp},
		{"the stamp compares the version", stampChecksVersion, owner.faults(1), changeLost},
		{"the stamp is one statement", stampIsOneStatement, calls.faults(0), neither},
		{"an id is in flight until its stamp has committed", inFlightUntilStamped, poller.faults(0), repeated},
		{"a lost stamp is read back", readBack, handOver.faults(1), repeated},
		{"the read-back takes the ids out of their claims", readBackTakesClaim, calls.faults(2), deadThoughDelivered},
		{"a new leader releases first", releaseFirst, handOver.faults(2), neither},
		{"a release runs under the lock", releaseUnderLock, handOver.faults(2), neither},
		{"a release goes by id", releaseGoesByID, doubtful, deadThoughDelivered},
		{"a take-over is durable", takeoverIsDurable, server.faults(2), deposedStamp},
		{"a full look follows a reconnect", lookAfterReconnect, handOver.faults(1), lost},
		{"the low-water mark waits for writers", lowWaterWaitsForWriters, poller.faults(0), lost},
		{"what goes back is asked for again", backIsAskedAgain, calls.faults(1), lost},
		{"what is behind sees its key settle", behindSeesSettling | behindIsAskedAgain, arrival.faults(0), lost},
		{"what is behind is asked for by timer", behindIsAskedAgain, owner.faults(1), lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := (&model{scenario: c.in, without: c.without}).explore()
			require.Equal(t, c.breaks, r.broken, "%s, not %s\n%s", r.broken, c.breaks, r.trace)
			t.Logf("without it, after %d states: %s\n%s", r.states, r.broken, r.trace)
		})
	}
}
