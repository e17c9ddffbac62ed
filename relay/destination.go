package relay

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pgrelay/internal/config"
)

// destinationConfig is one destination and what it needs of the rest of the relay.
type destinationConfig struct {
	name        string
	pub         Publisher
	concurrency int           // most calls in flight
	linger      time.Duration // how long a partial batch waits for more rows
	// pauseInitial and pauseMax bound how long a destination at fault is left alone.
	pauseInitial, pauseMax time.Duration
	retry                  config.Retry
	rows                   int // most rows held, waiting and in flight
	// maySend says that the lead is fresh. It is asked before every call.
	maySend func() bool
	// sends claims what is sent at most once.
	sends claimant
	// settle gets deliveries with their verdict, those of a line in its order. It never blocks.
	settle func([]*delivery)
	// opened is called when room grows from none. It never blocks.
	opened  func()
	log     zerolog.Logger
	metrics *destinationMetrics
}

// destination is the publish stage of one destination: it holds claimed rows until
// they are sent or given back, and gives each its verdict exactly once.
type destination struct {
	cfg  destinationConfig
	wake chan struct{}  // for run, when something changed
	work sync.WaitGroup // calls; only run adds to it

	mu       sync.Mutex
	breaker  breaker
	lines    lines
	tries    tries
	refused  refusedBy
	limits   Limits    // as of the last Open
	accepted uint64    // messages so far
	calls    int       // in flight
	flying   int       // rows in flight
	held     time.Time // since when a partial batch is held back; zero if none is
	opening  bool      // Open is under way
	aborted  bool
	full     bool          // held all the rows it may, and hasn't got rid of a quarter yet
	roomy    bool          // had room after the last change
	idle     chan struct{} // closed when no call is in flight any more; nil if nobody waits
}

func newDestination(cfg destinationConfig) *destination {
	d := &destination{
		cfg:  cfg,
		wake: make(chan struct{}, 1),
		breaker: breaker{
			initial: cfg.pauseInitial, max: cfg.pauseMax, concurrency: cfg.concurrency, rnd: rand.Float64,
			health: health{paused: true, reason: reasonStarting},
		},
		lines: newLines(),
		tries: newTries(), refused: newRefusedBy(),
	}
	cfg.metrics.begin(cfg.name)
	return d
}

// run opens the destination and sends until ctx ends. Then it gives back what waits,
// cuts the calls in flight, whose outcome is unknown, and returns when they have ended.
func (d *destination) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			d.abort()
			d.work.Wait()
			return nil
		case <-d.wake:
		case <-timer.C:
		}
		timer.Reset(d.step(ctx))
	}
}

// room is how many rows it would take now: none when paused, aborted or full, one when a
// probe is due, more as the calls in flight grow. After it was full it is none until a
// quarter is free, so that claims don't become small.
func (d *destination) room() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.roomNow()
}

// enqueue takes claimed rows, in the order of their outbox. It takes them all: the
// claimer asks room first, and what doesn't fit a destination that was paused since goes back.
func (d *destination) enqueue(ds []*delivery) {
	now := time.Now()
	sends := false
	d.update(func() {
		sends = !d.aborted && d.breaker.phase != phasePaused
		if !sends {
			return
		}
		for _, row := range ds {
			d.lines.add(item{delivery: row, bytes: d.cfg.pub.Size(row.msg), since: now})
		}
	})
	if !sends {
		d.giveBack(ds)
	}
}

// abort gives back what was not sent, and sends nothing more until resume. Calls on
// the wire end and settle with their outcome.
func (d *destination) abort() {
	var back []*delivery
	d.update(func() {
		d.aborted = true
		back = d.lines.drop()
	})
	d.giveBack(back)
}

// resume ends an abort: the lead is ours again.
func (d *destination) resume() {
	d.update(func() { d.aborted = false })
}

// drain aborts and waits until no call is in flight or ctx ends.
func (d *destination) drain(ctx context.Context) {
	d.abort()
	d.mu.Lock()
	if d.calls == 0 {
		d.mu.Unlock()
		return
	}
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle := d.idle
	d.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// destinationState is a destination as status and logs show it.
type destinationState struct {
	health
	until    time.Time // the next probe, if it is paused
	waiting  int       // rows
	inFlight int       // rows
}

func (d *destination) state() destinationState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return destinationState{health: d.breaker.health, until: d.breaker.until, waiting: d.lines.rows, inFlight: d.flying}
}

// step starts what is due, and says for how long nothing else will be.
func (d *destination) step(ctx context.Context) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	switch {
	case d.opening:
	case d.breaker.phase != phasePaused:
		return d.send(ctx, now)
	case now.Before(d.breaker.until):
		return d.breaker.until.Sub(now)
	default:
		d.opening = true
		d.work.Go(func() { d.open(ctx) })
	}
	return math.MaxInt64
}

// send starts the calls that may go now, and says how long the next must wait.
func (d *destination) send(ctx context.Context, now time.Time) time.Duration {
	limits := d.limits
	if d.breaker.phase == phaseProbing {
		limits.Messages = 1
	}
	for d.calls < d.breaker.window && d.lines.ready.len() > 0 {
		n, full := fill(&d.lines.ready, limits)
		if !full {
			if d.held.IsZero() {
				d.held = now
			}
			at := departure(d.cfg.linger, d.calls, d.lines.ready.at(0).since, d.held)
			if now.Before(at) {
				return at.Sub(now)
			}
		}
		d.held = time.Time{}
		c := &call{batch: d.lines.take(n), mark: d.accepted, epoch: d.breaker.epoch}
		d.calls++
		d.flying += n
		d.work.Go(func() { d.do(ctx, c) })
	}
	return math.MaxInt64
}

// open reaches for the destination at the end of a pause.
func (d *destination) open(ctx context.Context) {
	err := d.cfg.pub.Open(ctx)
	if ctx.Err() != nil {
		return // stopped, which is not the destination's fault
	}
	fault, ok := errors.AsType[*Fault](err)
	if err != nil && !ok {
		fault = &Fault{Reason: "unreachable", Err: err}
	}
	d.update(func() {
		d.opening = false
		if fault == nil {
			d.limits = d.cfg.pub.Limits()
		}
		d.breaker.opened(time.Now(), fault)
	})
}

// update changes the state, and then tells everybody whom the change concerns.
func (d *destination) update(change func()) {
	d.mu.Lock()
	before := d.breaker.health
	change()
	after := d.breaker.health
	if before.paused != after.paused {
		d.cfg.metrics.paused.WithLabelValues(d.cfg.name).Set(boolGauge(after.paused))
	}
	had := d.roomy
	d.roomy = d.roomNow() > 0
	grew := d.roomy && !had
	d.mu.Unlock()

	d.announce(before, after)
	select {
	case d.wake <- struct{}{}:
	default:
	}
	if grew {
		d.cfg.opened()
	}
}

// announce logs a change of health, not each failure.
func (d *destination) announce(before, after health) {
	if before.paused == after.paused && before.reason == after.reason {
		return
	}
	starting := before.reason == reasonStarting
	switch {
	case after.paused && starting:
		d.cfg.log.Warn().Str("destination", d.cfg.name).Str("reason", after.reason).Str("detail", after.detail).
			Msg("destination starts paused")
	case after.paused:
		d.cfg.log.Warn().Str("destination", d.cfg.name).Str("reason", after.reason).Str("detail", after.detail).
			Msg("destination paused")
	case starting:
		d.cfg.log.Info().Str("destination", d.cfg.name).Msg("destination ready")
	default:
		d.cfg.log.Info().Str("destination", d.cfg.name).Str("reason", before.reason).
			Stringer("paused_for", after.since.Sub(before.since).Round(time.Millisecond)).Msg("destination resumed")
	}
}

func (d *destination) roomNow() int {
	if d.aborted || d.breaker.phase == phasePaused {
		return 0
	}
	most := 1
	if d.breaker.phase == phaseFlowing {
		most = min(d.cfg.rows, 2*d.breaker.window*d.limits.Messages)
	}
	free := most - d.lines.rows - d.flying
	switch {
	case free <= 0:
		d.full = true
	case 4*free >= most:
		d.full = false
	}
	if d.full {
		return 0
	}
	return free
}

func (d *destination) giveBack(ds []*delivery) {
	if len(ds) == 0 {
		return
	}
	for _, row := range ds {
		row.verdict = verdict{kind: verdictBack}
	}
	d.cfg.settle(ds)
}
