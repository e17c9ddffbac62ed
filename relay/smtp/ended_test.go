package smtp

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/smtptest"
	"pgrelay/relay"
)

// lateConn is one whose call has ended, and which is closed for that only later.
type lateConn struct{ net.Conn }

func (lateConn) Close() error { return nil }

// late takes the idle connection for a call that ends at a command. It is closed when the test ends.
func late(t *testing.T, p *Publisher, s *smtptest.Server, verb string) (context.Context, *connection) {
	t.Helper()
	c := p.idle.get()
	require.NotNil(t, c)
	raw := c.raw
	t.Cleanup(func() { _ = raw.Close() })
	c.raw = lateConn{raw}
	ctx, cancel := context.WithCancel(t.Context())
	s.SetFault(ending(verb, cancel))
	return ctx, c
}

// ending ends a call at a command, which is answered nevertheless.
func ending(verb string, cancel func()) func(smtptest.Command) smtptest.Fault {
	return func(c smtptest.Command) smtptest.Fault {
		if c.Verb == verb {
			cancel()
		}
		return smtptest.Fault{}
	}
}

// TestConnectionOfAnEndedCallIsNotKept: it would be closed in the midst of another call's mail, which would be unknown then.
func TestConnectionOfAnEndedCallIsNotKept(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	ctx, c := late(t, p, s, "DOT")
	result, fault, _ := p.deliver(ctx, c, &letter{from: ada, to: bob, data: []byte("Subject: s\r\n\r\ntext\r\n")})
	require.Nil(t, fault)
	require.Equal(t, relay.OutcomeDelivered, result.Outcome, "it was answered")
	require.Nil(t, p.idle.get())
}

func TestConnectionOfAnEndedOpenIsNotKept(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	ctx, c := late(t, p, s, "RSET")
	require.NotNil(t, p.greet(ctx, c))
}

func TestConnectionWhoseCallEndsAsItBeginsIsNotUsed(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.addr)
	require.NoError(t, err)
	defer raw.Close() //nolint:errcheck // it is done
	ctx, cancel := context.WithCancel(t.Context())
	s.SetFault(ending("EHLO", cancel))
	_, fault := p.session(ctx, lateConn{raw})
	require.NotNil(t, fault)
}

// TestEndedCallLeavesTheIdleConnectionAlone: to find out on it that nothing may be sent would cost it.
func TestEndedCallLeavesTheIdleConnectionAlone(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result, fault := publishIn(ctx, t, p, mailTo(with(nil), ada))
	require.Nil(t, fault)
	require.Equal(t, notSent, result)
	requireDelivered(t, p, mailTo(with(nil), bob))
	require.Equal(t, 1, s.Sessions())
}

// TestServerThatIsSilentAtMailIsNotAskedAgain: the idle connection isn't dead, the time is over.
func TestServerThatIsSilentAtMailIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	s.SetFault(func(c smtptest.Command) smtptest.Fault {
		if c.Verb != "MAIL" {
			return smtptest.Fault{}
		}
		cancel(errDeadline)
		return hang
	})
	result, fault := publishIn(ctx, t, p, mailTo(with(nil), ada))
	require.Equal(t, reasonLost, result.Reason)
	require.Contains(t, fault.Detail, "no answer at MAIL")
}
