package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// timing is fixed but for tests.
type timing struct {
	retryFirst, retryMost time.Duration
	createWithin          time.Duration // for open transactions to end
	openWithin            time.Duration // for everything up to the first message
	watchEvery            time.Duration
}

func defaultTiming() timing {
	return timing{
		retryFirst: time.Second, retryMost: 10 * time.Second,
		createWithin: 5 * time.Second, openWithin: time.Minute,
		watchEvery: 30 * time.Second,
	}
}

// Stream keeps publication, slot and connection alive and hands ids to its sink.
type Stream struct {
	cfg    Config
	sink   Sink
	timing timing

	// Of the goroutine of Run:
	logged               string // the last condition that was logged
	leftOut              string // the tables left out that were logged
	lastPID              int32  // our last walsender, which may take a moment to go
	olderThanPublication bool   // the slot is

	mu        sync.Mutex
	condition error
}

var errNotStarted = errors.New("the stream has not started")

// New makes a stream that does nothing before [Stream.Run].
func New(cfg Config, sink Sink) (*Stream, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("checking the stream's configuration: %w", err)
	}
	return &Stream{cfg: cfg, sink: sink, timing: defaultTiming(), condition: errNotStarted}, nil
}

// Condition is why nothing is streamed at the moment, nil while something is. It is an
// [*Unavailable] if a person has to do something about it. It may be called at any time.
func (s *Stream) Condition() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.condition
}

// Run streams until ctx ends, over every failure, and then returns nil within seconds,
// with the last position confirmed and the connection closed.
func (s *Stream) Run(ctx context.Context) error {
	retry := backoff{first: s.timing.retryFirst, most: s.timing.retryMost}
	for {
		lasted, err := s.cycle(ctx)
		if ctx.Err() != nil {
			s.setCondition(ctx.Err())
			return nil
		}
		s.note(err)
		if lasted > s.timing.retryMost {
			retry.reset()
		}
		select {
		case <-time.After(s.delay(&retry, err)):
		case <-ctx.Done():
		}
	}
}

// delay is constant while somebody reads our slot: it may be free any moment.
func (s *Stream) delay(retry *backoff, err error) time.Duration {
	if u, ok := errors.AsType[*Unavailable](err); ok && u.Reason == ReasonSlotHeld {
		retry.reset()
		return s.timing.retryFirst
	}
	return retry.next()
}

// note logs a condition when it changes.
func (s *Stream) note(err error) {
	s.setCondition(err)
	if err.Error() == s.logged {
		return
	}
	s.logged = err.Error()
	event := s.cfg.Log.Warn().Err(err)
	if u, ok := errors.AsType[*Unavailable](err); ok {
		event = event.Str("reason", u.Reason)
	}
	event.Msg("no replication stream: rows are found by polling; trying again")
}

func (s *Stream) setCondition(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition = err
}

// cycle is one connection from its preflight to its end. It returns for how long it streamed.
func (s *Stream) cycle(ctx context.Context) (time.Duration, error) {
	sess, err := s.open(ctx)
	if err != nil {
		return 0, err
	}
	defer closeConn(sess.conn)
	started := time.Now()
	s.logged = ""
	s.setCondition(nil)
	s.cfg.Metrics.connected.Set(1)
	defer s.cfg.Metrics.connected.Set(0)

	err = s.stream(ctx, sess)
	if ctx.Err() == nil {
		s.cfg.Metrics.reconnects.Inc()
	}
	if sqlState(err) == codeUndefinedObject {
		// pgoutput reads the catalog as it was when the row was written. A publication
		// that was not there then will never be found from this slot.
		s.olderThanPublication = true
	}
	return time.Since(started), err
}

// stream reads while a watch beside it looks at what the stream itself can't see.
func (s *Stream) stream(ctx context.Context, sess *session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := s.watch(ctx); err != nil {
			cancel(err)
		}
	})
	err := sess.run(ctx)
	cancel(nil)
	watch.Wait()
	return err
}

// open brings about publication and slot, in this order, and starts the stream.
func (s *Stream) open(ctx context.Context) (_ *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.openWithin)
	defer cancel()
	sql, err := s.connectSQL(ctx)
	if err != nil {
		return nil, err
	}
	defer closeConn(sql.PgConn())
	if err := checkWALLevel(ctx, sql); err != nil {
		return nil, err
	}
	reason, err := s.publish(ctx, sql)
	if err != nil {
		// Nobody reads the slot meanwhile, and it must not fill the disk (G5).
		_, unusable := s.preflight(ctx, sql)
		return nil, errors.Join(err, unusable)
	}
	why, err := s.preflight(ctx, sql)
	if err != nil {
		return nil, err
	}
	conn, last, err := connectStream(ctx, s.cfg.Conn)
	if err != nil {
		return nil, err
	}
	s.lastPID = int32(conn.PID())
	if why != "" {
		reason = "slot created: " + why
		err = s.createSlot(ctx, sql, conn, why)
	} else {
		err = s.setFailover(ctx, conn)
	}
	if err == nil {
		err = s.start(ctx, conn)
	}
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	s.cfg.Log.Info().Str("slot", s.cfg.Slot).Str("publication", s.cfg.Publication).Msg("replication stream started")
	// Only now, when the stream will bring whatever this look doesn't see; a slot that
	// exists but can't be started would ask for a look at each try.
	s.sink.CatchUp(reason)
	return newSession(conn, last, &s.cfg, s.sink), nil
}

func (s *Stream) connectSQL(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, sqlConfig(s.cfg.Conn))
	if sqlState(err) == codeProtocolViolation {
		return nil, pooler(err) // it refuses our session settings
	}
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return conn, nil
}

func checkWALLevel(ctx context.Context, sql *pgx.Conn) error {
	var level string
	if err := sql.QueryRow(ctx, `SELECT current_setting('wal_level')`).Scan(&level); err != nil {
		return fmt.Errorf("reading wal_level: %w", err)
	}
	if level != "logical" {
		return &Unavailable{Reason: ReasonWALLevel, Detail: walLevelDetail}
	}
	return nil
}

// publish sees to the publication and returns the reason for the catch-up.
func (s *Stream) publish(ctx context.Context, sql *pgx.Conn) (string, error) {
	before, changed, err := ensurePublication(ctx, sql, s.cfg.Publication, s.cfg.Tables)
	if err != nil {
		return "", err
	}
	if out := before.leftOut(); out != s.leftOut {
		s.leftOut = out
		s.cfg.Log.Warn().Str("publication", s.cfg.Publication).Str("left_out", out).Msg("tables that cannot be published changed")
	}
	if !changed {
		return "connected", nil
	}
	s.olderThanPublication = s.olderThanPublication || !before.exists
	s.cfg.Log.Info().Str("publication", s.cfg.Publication).Bool("created", !before.exists).Msg("publication brought about")
	return "publication changed", nil
}

// preflight looks at the slot, lets go what can't be used any more, and returns why one
// has to be made; empty if the slot that is there will do.
func (s *Stream) preflight(ctx context.Context, sql *pgx.Conn) (string, error) {
	st, err := s.releasedSlot(ctx, sql)
	if err != nil {
		return "", err
	}
	action, why, err := st.decide(&s.cfg, s.olderThanPublication)
	if err != nil || action == slotUse {
		return "", err
	}
	if action == slotReplace {
		if err := s.letGo(ctx, sql, st, why); err != nil {
			return "", err
		}
	}
	return why, nil
}

func (s *Stream) letGo(ctx context.Context, sql *pgx.Conn, st SlotState, why string) error {
	if err := dropSlot(ctx, sql, s.cfg.Slot); err != nil && !errors.Is(err, ErrNoSlot) {
		return err
	}
	s.cfg.Log.Warn().Str("slot", s.cfg.Slot).Str("reason", why).Str("wal_status", st.WALStatus).Str("lost", st.LostReason).
		Int64("retained_bytes", st.RetainedBytes).Msg("replication slot let go")
	return nil
}

// releasedSlot looks at the slot once our own last walsender is gone from it. After a
// half-open connection it may stay for wal_sender_timeout, or for ever where that is 0.
func (s *Stream) releasedSlot(ctx context.Context, sql *pgx.Conn) (SlotState, error) {
	st, err := awaitRelease(ctx, sql, s.cfg.Slot, s.lastPID)
	if err != nil || s.lastPID == 0 || st.Holder.PID != s.lastPID {
		return st, err
	}
	if err := endBackend(ctx, sql, s.lastPID); err != nil {
		return st, err
	}
	return awaitRelease(ctx, sql, s.cfg.Slot, s.lastPID)
}

func (s *Stream) createSlot(ctx context.Context, sql *pgx.Conn, conn *pgconn.PgConn, why string) error {
	c := creator{cfg: &s.cfg, sql: sql, stream: conn, within: s.timing.createWithin}
	if err := c.create(ctx); err != nil {
		return err
	}
	s.olderThanPublication = false
	s.cfg.Metrics.slots.WithLabelValues(why).Inc()
	s.cfg.Log.Info().Str("slot", s.cfg.Slot).Str("reason", why).Bool("temporary", s.cfg.Temporary).Msg("replication slot created")
	return nil
}

// setFailover brings a slot that was there before in line with the configuration: one that somebody made by hand, or that came
// from an older server through pg_upgrade, is synchronized to no standby. The server does nothing where nothing changes.
func (s *Stream) setFailover(ctx context.Context, conn *pgconn.PgConn) error {
	if serverMajor(conn) < failoverVersion || s.cfg.Temporary {
		return nil
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf("ALTER_REPLICATION_SLOT %s (FAILOVER %t)", s.cfg.Slot, s.cfg.Failover)).ReadAll(); err != nil {
		return fmt.Errorf("altering the slot: %w", err)
	}
	return nil
}

// start asks for everything that the slot has not confirmed: at 0/0 the server begins
// there, and it alone knows where that is.
func (s *Stream) start(ctx context.Context, conn *pgconn.PgConn) error {
	err := pglogrepl.StartReplication(ctx, conn, s.cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		Mode:       pglogrepl.LogicalReplication,
		PluginArgs: []string{"proto_version '1'", "publication_names " + quoteLiteral(quoteName(s.cfg.Publication))},
	})
	if err != nil {
		return fmt.Errorf("starting replication: %w", err)
	}
	return nil
}
