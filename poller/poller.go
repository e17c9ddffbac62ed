package poller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"pgrelay/relay"
)

// Relay is where ids go. *relay.Relay is one.
type Relay interface {
	// Offer waits for room, a while at most: then it returns relay.ErrNoRoom and promises a Look.
	Offer(ctx context.Context, t *relay.Table, ids []string) error
	// Rooms says how many rows each destination would take; it promises a Look when a 0 becomes more.
	Rooms(t *relay.Table) []int32
}

// Config of a poller.
type Config struct {
	Conn          *pgx.ConnConfig // as parsed; session settings are added
	Interval      time.Duration   // between regular looks
	SweepInterval time.Duration   // between sweeps, and full looks
	ClaimTimeout  time.Duration   // of rows that somebody else left in processing
	Ledger        time.Duration   // of events in the outboxes' ledgers; 0: for ever
	Tables        []*relay.Table
	Registerer    prometheus.Registerer
	Log           zerolog.Logger
}

// Poller looks for rows while its instance leads. Look and Due are safe for concurrent use.
type Poller struct {
	cfg     Config
	relay   Relay
	watches []*watch
	byTable map[*relay.Table]*watch
	kick    chan struct{}
	metrics *metrics
}

// New builds a poller.
func New(cfg Config, r Relay) *Poller {
	p := &Poller{cfg: cfg, relay: r, byTable: map[*relay.Table]*watch{}, kick: make(chan struct{}, 1), metrics: newMetrics(cfg.Registerer, cfg.Tables)}
	for _, t := range cfg.Tables {
		w := &watch{table: t, blind: t.Blind(), conditional: t.Conditional()}
		p.watches, p.byTable[t] = append(p.watches, w), w
	}
	return p
}

// Look asks for a full look at a table: for one destination's rows, or for all when sink is negative.
func (p *Poller) Look(t *relay.Table, sink int) {
	p.byTable[t].want(sink)
	p.wake()
}

// Due says that a row of the table is due in a while.
func (p *Poller) Due(t *relay.Table, in time.Duration) {
	if p.byTable[t].due(time.Now().Add(in)) {
		p.wake()
	}
}

func (p *Poller) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Run looks until ctx ends. It waits out servers that are gone, and returns nil.
func (p *Poller) Run(ctx context.Context) error {
	wait, said := time.Duration(0), ""
	for ctx.Err() == nil {
		began := time.Now()
		err := p.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > reconnectMost {
			wait, said = 0, ""
		}
		wait = min(max(reconnectFirst, 2*wait), reconnectMost)
		if text := relay.PublicError(err); text != said {
			said = text
			p.cfg.Log.Warn().Str("error", text).Msg("poller lost its connection")
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

const (
	reconnectFirst = 100 * time.Millisecond
	reconnectMost  = 5 * time.Second
)

// statementMost bounds a statement where the network gives no answer at all: a server that works ends it by statement_timeout (5 s).
const statementMost = 8 * time.Second

func statement(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, statementMost)
}

// session looks on one connection until it breaks.
func (p *Poller) session(ctx context.Context) error {
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer relay.CloseSession(conn)
	for _, w := range p.watches {
		w.restart()
	}
	for {
		next, err := p.round(ctx, conn)
		if err != nil {
			return err
		}
		if err := p.await(ctx, conn, next); err != nil {
			return err
		}
	}
}

// connect opens a session that listens before its first look, so that no wake-up falls between the two.
func (p *Poller) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, relay.SessionConfig(p.cfg.Conn, "pgrelay poller"))
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	ctx, cancel := statement(ctx)
	defer cancel()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{relay.NotifyChannel}.Sanitize()); err != nil {
		relay.CloseSession(conn)
		return nil, fmt.Errorf("listening: %w", err)
	}
	return conn, nil
}

// await waits for a notification, a kick or a time.
func (p *Poller) await(ctx context.Context, conn *pgx.Conn, until time.Time) error {
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	kicked := make(chan bool, 1)
	go func() {
		select {
		case <-p.kick:
			kicked <- true
			cancel()
		case <-waiting.Done():
			kicked <- false
		}
	}()
	n, err := conn.WaitForNotification(waiting)
	cancel()
	<-kicked
	switch {
	case err == nil:
		for _, w := range p.watches {
			if n.Payload == "" || n.Payload == w.table.Name {
				w.due(time.Now())
				if w.table.Blocks() {
					w.want(-1) // what a dead row held may be free
				}
			}
		}
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case pgconn.Timeout(err) || errors.Is(err, context.Canceled):
		return nil
	default:
		return fmt.Errorf("waiting: %w", err)
	}
}

// round does for each table what is due, and says when the next thing is.
func (p *Poller) round(ctx context.Context, conn *pgx.Conn) (next time.Time, err error) {
	next = time.Now().Add(p.cfg.Interval)
	for _, w := range p.watches {
		at, err := p.visit(ctx, conn, w)
		if err != nil {
			return next, err
		}
		if at.Before(next) {
			next = at
		}
	}
	return next, nil
}

// visit does for one table what is due. A table that refuses is left alone for a while; only a lost session is an error.
func (p *Poller) visit(ctx context.Context, conn *pgx.Conn, w *watch) (time.Time, error) {
	now := time.Now()
	if now.Before(w.quietUntil) {
		return w.quietUntil, nil
	}
	task := w.plan(now)
	err := p.do(ctx, conn, w, &task)
	switch {
	case err == nil:
		if w.failing != "" {
			p.cfg.Log.Info().Str("outbox", w.table.Name).Msg("looks work again")
			w.failing, w.quiet = "", 0
		}
		w.done(task, time.Now(), p.cfg.Interval)
		return w.next(time.Now()), nil
	case ctx.Err() != nil || conn.IsClosed() || !isServerError(err):
		return now, fmt.Errorf("looking at %s: %w", w.table.Name, err)
	case w.blinded(err, now):
		w.undone(task)
		return now, nil
	default:
		w.undone(task)
		w.quiet = min(max(time.Second, 2*w.quiet), 10*time.Second)
		w.quietUntil = time.Now().Add(w.quiet)
		if text := relay.PublicError(err); text != w.failing {
			w.failing = text
			p.cfg.Log.Error().Str("outbox", w.table.Name).Str("error", text).Msg("looking for rows fails; trying again")
		}
		return w.quietUntil, nil
	}
}

func isServerError(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (len(pg.Code) < 3 || pg.Code[:3] != "57P")
}
