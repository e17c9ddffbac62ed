package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"
)

var (
	errSilent = errors.New("the server has been silent too long")
	errEnded  = errors.New("the server ended the stream")
)

// session is one connection that streams. Everything in it, and every call of the
// sink, belongs to the goroutine of run: reads and writes must not overlap.
type session struct {
	conn    *pgconn.PgConn
	last    *lastByte
	sink    Sink
	log     zerolog.Logger
	metrics *Metrics

	dec      *decoder
	pos      position
	reported pglogrepl.LSN
	pace     pace
	noID     map[*Table]bool // tables whose rows come without an id, and which were logged
}

func newSession(conn *pgconn.PgConn, last *lastByte, cfg *Config, sink Sink) *session {
	return &session{
		conn: conn, last: last, sink: sink, log: cfg.Log, metrics: cfg.Metrics,
		dec:  newDecoder(cfg.Tables),
		noID: map[*Table]bool{},
	}
}

// run reads until the stream breaks or ctx ends; then it confirms what was handed over
// and closes in order.
func (s *session) run(ctx context.Context) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) // a closed connection wakes by itself
	})
	defer stop()
	s.pace.sent = time.Now()
	for {
		wake, err := s.keepPace()
		if err != nil {
			return err
		}
		if err := s.conn.Conn().SetReadDeadline(wake); err != nil {
			return fmt.Errorf("setting the read deadline: %w", err)
		}
		// After the deadline, so that an end of ctx in between is not slept through.
		if ctx.Err() != nil {
			<-woken // or it would cut finish short
			return errors.Join(context.Cause(ctx), s.finish())
		}
		// Not ReceiveMessage(ctx): watching a context costs more than reading a row.
		msg, err := s.conn.ReceiveMessage(context.Background())
		if timedOut(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		if err := s.handle(msg); err != nil {
			return err
		}
	}
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// keepPace reports when it is due and returns when to come back at the latest.
func (s *session) keepPace() (time.Time, error) {
	for {
		now := time.Now()
		s.pace.heard = s.last.time()
		do, wake := s.pace.next(now, s.pos.confirmed != s.reported)
		switch do {
		case stepWait:
			return wake, nil
		case stepGiveUp:
			return wake, errSilent
		case stepReport, stepAsk:
			if err := s.report(do == stepAsk); err != nil {
				return wake, err
			}
		}
	}
}

// report sends the position. All three are the same: what we have handed over is all
// that we shall ever want, and pglogrepl fills in zeros by itself.
func (s *session) report(ask bool) error {
	now := time.Now()
	if err := s.conn.Conn().SetWriteDeadline(now.Add(writeTimeout)); err != nil {
		return fmt.Errorf("setting the write deadline: %w", err)
	}
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: s.pos.confirmed, WALFlushPosition: s.pos.confirmed, WALApplyPosition: s.pos.confirmed,
		ReplyRequested: ask,
	})
	if err != nil {
		return fmt.Errorf("reporting the position: %w", err)
	}
	s.reported = s.pos.confirmed
	s.pace.reported(now, ask)
	return nil
}

func (s *session) handle(msg pgproto3.BackendMessage) error {
	switch m := msg.(type) {
	case *pgproto3.CopyData:
		return s.handleCopyData(m.Data)
	case *pgproto3.ErrorResponse:
		return fmt.Errorf("streaming: %w", pgconn.ErrorResponseToPgError(m))
	case *pgproto3.CopyDone, *pgproto3.CommandComplete:
		return errEnded
	}
	return nil // notices and parameters
}

func (s *session) handleCopyData(data []byte) error {
	if len(data) == 0 {
		return fmt.Errorf("reading the stream: %w", errShort)
	}
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		m, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return fmt.Errorf("reading a keepalive: %w", err)
		}
		s.pos.keepalive(m.ServerWALEnd)
		if m.ReplyRequested {
			return s.report(false)
		}
	case pglogrepl.XLogDataByteID:
		m, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return fmt.Errorf("reading WAL data: %w", err)
		}
		c, err := s.dec.decode(m.WALData)
		if err != nil {
			return err
		}
		s.apply(c)
	}
	return nil
}

func (s *session) apply(c change) {
	switch c.kind {
	case changeNone:
	case changeBegin:
		s.pos.begin()
	case changeCommit:
		s.pos.commit(c.end)
	case changeRow:
		s.metrics.rows.Inc()
		if s.noID[c.table] {
			delete(s.noID, c.table)
			s.log.Info().Str("table", c.table.Canonical).Msg("rows of the table come with their id again")
		}
		b := &s.dec.begin
		// A full queue is the sink's own business: it looks into the table then.
		_ = s.sink.Inserted(c.table.Canonical, c.id, b.Xid, uint64(b.FinalLSN), b.CommitTime)
	case changeNoID:
		s.metrics.unmatched.WithLabelValues(unmatchedID).Inc()
		if !s.noID[c.table] {
			s.noID[c.table] = true
			s.log.Error().Str("table", c.table.Canonical).Str("column", c.table.IDColumn).
				Msg("rows of the table come without their id: the column was renamed or dropped, or is not published")
		}
	case changeAlien:
		s.metrics.unmatched.WithLabelValues(unmatchedRelation).Inc()
	}
}

// finish reports once more, so that what was handed over isn't sent again, and ends
// the copy so that the server's side is gone when we return.
func (s *session) finish() error {
	deadline := time.Now().Add(finishWithin)
	if err := s.report(false); err != nil {
		return err
	}
	if err := s.conn.Conn().SetDeadline(deadline); err != nil {
		return fmt.Errorf("setting the deadline: %w", err)
	}
	if _, err := pglogrepl.SendStandbyCopyDone(context.Background(), s.conn); err != nil {
		return fmt.Errorf("ending the stream: %w", err)
	}
	return nil
}
