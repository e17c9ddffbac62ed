package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"pgrelay/internal/config"
)

// Config is what a relay works on.
type Config struct {
	Conn         *pgx.ConnConfig // as parsed; the relay adds its session settings
	Limits       config.Relay
	Interval     time.Duration // of the poller: nothing that waits for a signal waits longer
	Tables       []*Table
	Destinations []Destination // in the order of the sinks that the tables were opened with
	Registerer   prometheus.Registerer
	Log          zerolog.Logger
}

// Destination is a publisher and how it is to be treated.
type Destination struct {
	Sink
	Publisher Publisher
	Config    config.Destination
}

// Looker looks for rows by SQL; the poller is one. Its methods never block.
type Looker interface {
	// Look asks for a full look at a table for rows of one destination, or of all when sink is negative.
	Look(t *Table, sink int)
	// Due says that a row of the table is due in a while.
	Due(t *Table, in time.Duration)
}

// Relay moves rows through claim, publish and stamp. Its methods are safe for concurrent use.
type Relay struct {
	cfg          Config
	instance     uuid.UUID
	outboxes     []*outbox
	outboxOf     map[*Table]*outbox
	byName       map[string]*outbox
	destinations []*destination
	holds        []*hold // by destination
	flights      *flights
	recent       *recent
	guard        *guard
	stamper      *stamper
	sends        *sends
	looker       Looker
	metrics      *metrics
	work         chan struct{} // something may be claimed
	alone        atomic.Bool   // a suspect is in flight, and nothing else may be
	lines        sampled

	leader atomic.Pointer[leader]
	turned atomic.Int64 // when the loop of lock or claims last turned, in Unix nanoseconds
	stands atomic.Bool  // the server was reached at the last turn
	mu     sync.Mutex
	epoch  int64 // of the last lead here
	since  int64 // the first of the leads that were all this instance's, up to epoch
}

// inboxBound is the most ids that one outbox holds in memory, at about 200 bytes each.
const inboxBound = 50_000

// New builds a relay. SetLooker comes before Run.
func New(cfg Config) *Relay {
	r := &Relay{
		cfg: cfg, instance: uuid.New(), outboxOf: map[*Table]*outbox{}, byName: map[string]*outbox{},
		recent: newRecent(), metrics: newMetrics(cfg.Registerer, cfg.Tables), work: make(chan struct{}, 1),
	}
	r.turn(false)
	r.flights = newFlights(func() { signal(r.work) })
	r.guard = newGuard(cfg.Log, r.probeEvery, r.routeChanged)
	r.stamper, r.sends = newStamper(r, cfg.Log), newSends(r, cfg.Log)
	for _, t := range cfg.Tables {
		o := &outbox{table: t, inbox: newInbox(inboxBound, func() { signal(r.work) })}
		o.looker = func() { r.looker.Look(t, -1) }
		r.outboxes, r.outboxOf[t], r.byName[t.Name] = append(r.outboxes, o), o, o
	}
	published := newDestinationMetrics(cfg.Registerer)
	for i, d := range cfg.Destinations {
		r.holds = append(r.holds, newHold(2*cfg.Limits.BatchSize))
		r.destinations = append(r.destinations, newDestination(destinationConfig{
			name: d.Name, pub: d.Publisher, concurrency: d.Config.Concurrency,
			linger:       time.Duration(d.Config.Linger),
			pauseInitial: time.Duration(d.Config.Pause.Initial), pauseMax: time.Duration(d.Config.Pause.Max),
			retry: cfg.Limits.Retry, rows: destinationRows(d.Config.Concurrency), maySend: r.Leads, sends: r.sends,
			settle: r.settle, opened: func() { r.opened(i) }, log: cfg.Log, metrics: published,
		}))
	}
	return r
}

// destinationRows bounds what one destination holds: twice what its calls can have in flight, so that the next
// batches are there when calls end, and no slow destination holds all that may be in flight.
func destinationRows(concurrency int) int { return 2 * 10 * concurrency }

// SetLooker names who looks for rows.
func (r *Relay) SetLooker(l Looker) { r.looker = l }

// Tables are the outboxes.
func (r *Relay) Tables() []*Table { return r.cfg.Tables }

// Instance names this process in claims and in the leader row.
func (r *Relay) Instance() uuid.UUID { return r.instance }

// Leads says whether this instance leads and may send: its last good ping is young enough.
func (r *Relay) Leads() bool {
	l := r.leader.Load()
	return l != nil && l.fresh()
}

// turnsWithin is how old the last turn of a healthy loop is at most: it turns each second, and a claim may take
// its statement_timeout of 5 s, a connect 5 s for each host.
const turnsWithin = 30 * time.Second

// Turns says whether the loop that takes the lead and makes the claims is alive.
func (r *Relay) Turns() bool { return time.Since(time.Unix(0, r.turned.Load())) < turnsWithin }

// Stands says whether the instance leads or reached the server to stand by at its last turn.
func (r *Relay) Stands() bool { return r.Turns() && r.stands.Load() }

func (r *Relay) turn(reached bool) {
	r.turned.Store(time.Now().UnixNano())
	r.stands.Store(reached)
}

// Inserted takes an id from the stream. It never blocks; false says that there was no room, and that the poller has been asked to
// look.
func (r *Relay) Inserted(table, id string, xid uint32, commitLSN uint64, commitTime time.Time) bool {
	o, ok := r.byName[table]
	if !ok || r.recent.echo(o.table, id, commitLSN) {
		return true
	}
	left := o.inbox.push(want{id: id, xid: int64(xid), lsn: commitLSN, committed: commitTime, source: sourceStream})
	if len(left) > 0 {
		r.metrics.dropped.WithLabelValues(table).Inc()
		r.looker.Look(o.table, -1)
	}
	return len(left) == 0
}

// CatchUp asks for a full look at every table.
func (r *Relay) CatchUp(reason string) {
	r.cfg.Log.Info().Str("reason", reason).Msg("catching up")
	for _, o := range r.outboxes {
		r.looker.Look(o.table, -1)
	}
}

// ErrNoRoom says that for a while nothing was taken. Whoever looks goes on elsewhere and comes back.
var ErrNoRoom = errors.New("no room for more ids")

// offerMost is how long a look at one table may keep the others waiting for theirs.
const offerMost = time.Second

// Offer takes ids from the poller, and waits a while for room: then it returns ErrNoRoom.
func (r *Relay) Offer(ctx context.Context, t *Table, ids []string) error {
	wants := make([]want, len(ids))
	for i, id := range ids {
		wants[i] = want{id: id, xid: -1, source: sourcePoller}
	}
	limited, cancel := context.WithTimeoutCause(ctx, offerMost, ErrNoRoom)
	defer cancel()
	return r.outboxOf[t].inbox.offer(limited, wants)
}

// epochs are this instance's last lead, and the first of the unbroken row of its own leads that ends with it.
func (r *Relay) epochs() (last, since int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch, r.since
}

// Run stands by, leads while it holds the lock, and drains when ctx ends, within shutdown_timeout whoever is gone. While it leads
// it runs sources, which must return when their context ends.
func (r *Relay) Run(ctx context.Context, sources func(context.Context) error) error {
	calling, stamping := drainTimes(time.Duration(r.cfg.Limits.ShutdownTimeout))
	calls, stopCalls := afterwards(ctx, calling)
	defer stopCalls()
	stamps, stopStamps := afterwards(ctx, stamping)
	defer stopStamps()
	var g errgroup.Group
	g.Go(func() error { return r.stamper.run(stamps) })
	g.Go(func() error { return r.sends.run(stamps) })
	for _, d := range r.destinations {
		g.Go(func() error { return d.run(calls) })
	}
	r.stand(ctx, stamps, sources)
	stopCalls()
	stopStamps()
	return g.Wait()
}

// stand takes the lead again and again until ctx ends, and drains until stamps ends.
func (r *Relay) stand(ctx, stamps context.Context, sources func(context.Context) error) {
	wait, again := newReconnect(r.cfg.Log), newReconnect(r.cfg.Log)
	for ctx.Err() == nil {
		l, err := r.await(ctx)
		if err != nil {
			r.turn(false)
			wait.after(ctx, err)
			continue
		}
		wait.reset()
		began := time.Now()
		err = r.lead(ctx, l, sources)
		if ctx.Err() != nil {
			r.drain(stamps, l)
			return
		}
		r.resign(l)
		r.cfg.Log.Warn().Str("error", PublicError(err)).Msg("lost the lead; standing by")
		if time.Since(began) > reconnectMost {
			again.wait = 0
		}
		again.pause(ctx) // a lead that fails at once is not taken in a hot loop
	}
	r.drain(stamps, nil)
}

// await connects and tries the lock until it is held.
func (r *Relay) await(ctx context.Context) (*leader, error) {
	conn, err := r.connect(ctx, "pgrelay leader")
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for standing := false; ; standing = true {
		last, _ := r.epochs()
		limited, cancel := context.WithTimeout(ctx, statementMost)
		l, found, err := tryLead(limited, conn, r.instance, last)
		cancel()
		if err == nil {
			r.enter(found)
			return l, nil
		}
		if !errors.Is(err, errHeld) {
			CloseSession(conn)
			return nil, err
		}
		r.turn(true)
		if !standing {
			r.cfg.Log.Info().Msg("another instance leads; standing by")
		}
		if pid, err := endDeadHolder(ctx, conn); err == nil && pid != 0 {
			r.cfg.Log.Warn().Int("pid", pid).Msg("ended the session of a leader that was silent for too long")
		}
		select {
		case <-ctx.Done():
			CloseSession(conn)
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (r *Relay) enter(found lead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !found.own {
		r.since = found.epoch
	}
	r.epoch = found.epoch
}

// lead runs claimer and sources until the session is lost or ctx ends.
func (r *Relay) lead(ctx context.Context, l *leader, sources func(context.Context) error) error {
	names := make([]string, len(r.outboxes))
	for i, o := range r.outboxes {
		o.unreleased = true
		names[i] = o.table.Name
	}
	if err := l.forgetUnknown(ctx, names); err != nil {
		return err
	}
	r.recent.forgetLows()
	r.leader.Store(l)
	r.metrics.leader.Set(1)
	r.cfg.Log.Info().Stringer("instance", r.instance).Int64("epoch", l.epoch).Msg("leading")
	for _, d := range r.destinations {
		d.resume()
	}
	signal(r.work)
	g, gctx := errgroup.WithContext(ctx)
	c := &claimer{relay: r, leader: l, turn: true, log: r.cfg.Log}
	g.Go(func() error {
		err := c.run(gctx)
		if err == nil {
			return context.Cause(gctx)
		}
		l.ended.Store(true) // at once: the sources take a moment to end
		return err
	})
	g.Go(func() error { return sources(gctx) })
	return g.Wait()
}

// resign stops sending at once. What was not sent goes back; what is on the wire ends and is stamped if its claim still stands.
func (r *Relay) resign(l *leader) {
	l.ended.Store(true)
	r.leader.Store(nil)
	r.metrics.leader.Set(0)
	for _, d := range r.destinations {
		d.abort()
	}
	CloseSession(l.conn)
}

// drain ends in order: nothing new is sent, calls in flight get their outcome, everything is stamped or given back, and the
// lock, if it is held, is freed last. What is left when ctx ends is the next leader's.
func (r *Relay) drain(ctx context.Context, l *leader) {
	if l != nil {
		defer r.resign(l)
		pings, stopPings := context.WithCancel(ctx)
		var pinging sync.WaitGroup
		pinging.Go(func() { l.keep(pings) })
		defer pinging.Wait()
		defer stopPings()
	}
	var calls sync.WaitGroup
	for _, d := range r.destinations {
		calls.Go(func() { d.drain(ctx) })
	}
	calls.Wait()
	rows, _ := r.flights.inFlight()
	select {
	case <-r.flights.landed():
		select { // claims of what was not sent are released
		case <-r.sends.landed():
		case <-ctx.Done():
		}
		r.cfg.Log.Info().Int("stamped", rows).Msg("drained")
	case <-ctx.Done():
		left, _ := r.flights.inFlight()
		r.cfg.Log.Warn().Int("stamped", rows-left).Int("left", left).Msg("drain is unfinished: the next leader takes the rows up")
	}
}

// died counts a row that left the pending set undelivered, dead or uncertain, and logs it unless many go alike.
func (r *Relay) died(t *Table, id, kind string, v verdict) {
	r.metrics.dead.WithLabelValues(t.Name, v.reason).Inc()
	write, last := r.lines.line(time.Now(), t.Name+" "+v.reason)
	if !write {
		return
	}
	line := r.cfg.Log.Warn().Str("outbox", t.Name).Str("id", id).Str("kind", kind).Str("reason", v.reason).Str("detail", v.detail)
	list, text := "dead list", "row is dead"
	if v.kind == verdictUncertain {
		list, text = "sends list --uncertain", "row is uncertain"
	}
	if last {
		line.Str("more", "others of this reason are not logged for a minute; `pgrelay "+list+"` has them all")
	}
	line.Msg(text)
}
