package relay

import (
	"context"
	"time"
)

// statementMost bounds one of the relay's statements where the network or a frozen server gives no answer at all: a server that
// works ends it by statement_timeout (5 s).
const statementMost = 8 * time.Second

// endingMost is how long a statement on the leader's session may run on after a signal: to cut it would cost the session, and a
// claim that commits all the same would look like that of a process that crashed.
const endingMost = time.Second

// afterwards is a context that ends d after ctx has ended.
func afterwards(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return later, func() {
		stop()
		cancel()
	}
}

// statement bounds one on the leader's session.
func statement(ctx context.Context) (context.Context, context.CancelFunc) {
	later, end := afterwards(ctx, endingMost)
	limited, cancel := context.WithTimeout(later, statementMost)
	return limited, func() {
		cancel()
		end()
	}
}

// drainTimes divides shutdown_timeout: from the signal on, until when calls may be in flight (those that are cut then have an
// unknown outcome) and until when outcomes may be stamped. The rest is for closing two sessions, one after the
// other, at a server that doesn't answer.
func drainTimes(shutdown time.Duration) (calls, stamps time.Duration) {
	stamps = max(shutdown/2, shutdown-2*closeWithin)
	return max(stamps/2, stamps-time.Second), stamps
}
