package replication

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lastByte is when the connection last brought anything. Messages won't do: one of
// PostgreSQL 13 holds a whole row and may take longer than the silence that we bear.
type lastByte struct{ at atomic.Pointer[time.Time] }

func (l *lastByte) touch() {
	now := time.Now()
	l.at.Store(&now)
}

func (l *lastByte) time() time.Time { return *l.at.Load() }

type heardConn struct {
	net.Conn
	last *lastByte
}

func (c heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.last.touch()
	}
	return n, err
}

// connectStream opens the connection that will carry the stream.
func connectStream(ctx context.Context, base *pgx.ConnConfig) (*pgconn.PgConn, *lastByte, error) {
	cfg, last := streamConfig(base), &lastByte{}
	last.touch()
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return heardConn{c, last}, nil
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, nil, connectFault(err)
	}
	return conn, last, nil
}

// closeConn ends a connection within finishWithin, whatever became of the context and the server.
func closeConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), finishWithin)
	defer cancel()
	// An error here is about a connection that is of no more use.
	_ = conn.Close(ctx)
	// After a failure pgconn closes in the background.
	select {
	case <-conn.CleanupDone():
	case <-ctx.Done():
	}
}

// serverMajor is the major version that the server has told when it was connected to.
func serverMajor(conn *pgconn.PgConn) int {
	v := conn.ParameterStatus("server_version")
	if i := strings.IndexFunc(v, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		v = v[:i]
	}
	major, err := strconv.Atoi(v)
	if err != nil {
		return 0 // the oldest syntax is understood by all
	}
	return major
}
