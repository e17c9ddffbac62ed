package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// status is a report as the server reads it.
type status struct {
	at      time.Duration // since the start
	flushed uint64
	asks    bool
}

// fakeServer is the other end of a session.
type fakeServer struct {
	backend *pgproto3.Backend
	conn    net.Conn
	reports []status
	copyEnd bool
}

func newFakeSession(t *testing.T) (*session, *fakeServer) {
	t.Helper()
	client, server := net.Pipe()
	cfg, err := pgconn.ParseConfig("host=localhost sslmode=disable")
	require.NoError(t, err)
	last := &lastByte{}
	last.touch()
	conn, err := pgconn.Construct(&pgconn.HijackedConn{Conn: heardConn{client, last}, Config: cfg})
	require.NoError(t, err)
	stream := &Config{Tables: decoderTables, Log: zerolog.Nop(), Metrics: NewMetrics(prometheus.NewRegistry())}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return newSession(conn, last, stream, &fakeSink{}), &fakeServer{backend: pgproto3.NewBackend(server, server), conn: server}
}

// read collects reports until the connection or the copy ends.
func (f *fakeServer) read() {
	start := time.Now()
	for {
		msg, err := f.backend.Receive()
		if err != nil {
			return
		}
		switch m := msg.(type) {
		case *pgproto3.CopyData:
			f.reports = append(f.reports, status{time.Since(start), binary.BigEndian.Uint64(m.Data[9:]), m.Data[33] == 1})
		case *pgproto3.CopyDone:
			f.copyEnd = true
			f.backend.Send(&pgproto3.CopyDone{})
			f.backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")})
			f.backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			_ = f.backend.Flush()
			return
		}
	}
}

func (f *fakeServer) send(t *testing.T, data []byte) {
	t.Helper()
	f.backend.Send(&pgproto3.CopyData{Data: data})
	require.NoError(t, f.backend.Flush())
}

func keepalive(end uint64, ask byte) []byte {
	b := make([]byte, 18)
	b[0] = pglogrepl.PrimaryKeepaliveMessageByteID
	binary.BigEndian.PutUint64(b[1:], end)
	b[17] = ask
	return b
}

func walData(message []byte) []byte {
	return append(append([]byte{pglogrepl.XLogDataByteID}, make([]byte, 24)...), message...)
}

func TestAHalfOpenConnectionIsAskedAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newFakeSession(t)
		go server.read()
		start := time.Now()
		require.ErrorIs(t, s.run(t.Context()), errSilent)
		require.Equal(t, giveUpAfter, time.Since(start))
		closeConn(s.conn)
		synctest.Wait()
		require.Equal(t, []status{{10 * time.Second, 0, true}, {20 * time.Second, 0, true}}, server.reports)
	})
}

func TestAPeerThatDoesNotReadIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newFakeSession(t)
		err := s.run(t.Context()) // a pipe without a reader blocks the write
		require.ErrorContains(t, err, "reporting the position")
		closeConn(s.conn)
	})
}

func TestThePositionIsReportedWhenItMovesAndAtOnceWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newFakeSession(t)
		go server.read()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()

		<-time.After(2 * time.Second) // in the bubble: no real time
		server.send(t, keepalive(100, 0))
		synctest.Wait()
		require.Equal(t, []status{{2 * time.Second, 100, false}}, server.reports, "the last report is over a second old")
		server.send(t, keepalive(200, 0))
		<-time.After(1500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, status{3 * time.Second, 200, false}, server.reports[1])
		server.send(t, keepalive(300, 1))
		synctest.Wait()
		require.Equal(t, status{3500 * time.Millisecond, 300, false}, server.reports[2])

		server.send(t, walData(beginMessage(1, 400)))
		server.send(t, keepalive(500, 1))
		synctest.Wait()
		require.EqualValues(t, 300, server.reports[3].flushed, "a transaction is half received")
		server.send(t, walData(commitMessage(600)))
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		closeConn(s.conn)
		synctest.Wait()
		require.EqualValues(t, 600, server.reports[len(server.reports)-1].flushed, "the last report comes before the end")
		require.True(t, server.copyEnd)
	})
}

func TestTheEndIsBoundedWhenTheServerDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newFakeSession(t)
		go func() { _, _ = io.Copy(io.Discard, server.conn) }()
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("enough")
		cancel(reason)
		start := time.Now()
		err := s.run(ctx)
		closeConn(s.conn)
		require.ErrorIs(t, err, reason)
		require.LessOrEqual(t, time.Since(start), finishWithin)
	})
}

func TestGarbageEndsTheSessionAndNotTheProcess(t *testing.T) {
	for _, data := range [][]byte{{}, {'w'}, {'k', 1}, walData(nil), walData([]byte{'R', 1, 2, 3, 4, 0, 0}), walData(insertMessage(1, "1"))} {
		synctest.Test(t, func(t *testing.T) {
			s, server := newFakeSession(t)
			go func() { _, _ = io.Copy(io.Discard, server.conn) }()
			done := make(chan error, 1)
			go func() { done <- s.run(t.Context()) }()
			server.send(t, data)
			require.Error(t, <-done)
			closeConn(s.conn)
		})
	}
}
