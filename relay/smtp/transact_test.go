package smtp

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/smtptest"
)

// tornConn fails at the message's end: as it is written, or as its answer is read.
type tornConn struct {
	net.Conn
	reads bool
	ended bool
}

func (c *tornConn) Write(b []byte) (int, error) {
	if strings.HasSuffix(string(b), "\r\n.\r\n") {
		c.ended = true
		if !c.reads {
			return len(b) - 3, &net.OpError{Op: "write", Err: syscall.ECONNRESET}
		}
	}
	return c.Conn.Write(b)
}

func (c *tornConn) Read(b []byte) (int, error) {
	if c.ended {
		return 0, &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	}
	return c.Conn.Read(b)
}

// TestEndThatWasNotWrittenWholeWasNotSent: the same reset means two things.
func TestEndThatWasNotWrittenWholeWasNotSent(t *testing.T) {
	t.Parallel()
	for reads, want := range map[bool]step{false: stepBody, true: stepDot} {
		s := smtptest.Start(t, smtptest.Options{})
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", unopened(t, s, destination(s)).addr)
		require.NoError(t, err)
		defer conn.Close() //nolint:errcheck // torn already
		at, err := transact(smtp.NewClient(&tornConn{Conn: conn, reads: reads}), &letter{from: ada, to: bob, data: []byte("Subject: s\r\n\r\ntext\r\n")})
		require.Error(t, err)
		require.Equal(t, want, at)
	}
}
