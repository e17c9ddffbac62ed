package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
)

// stamper gives every delivery its outcome in the table, one statement per outbox for all that has gathered while it was
// busy, on a connection of its own. Releases run here as well, in turn with the stamps. It outlives a lead: what was
// sent is stamped if its claim still stands, whoever leads.
type stamper struct {
	relay *Relay
	conn  *pgx.Conn // owned by run
	log   zerolog.Logger
	away  atomic.Bool // the server doesn't let it in

	mu     sync.Mutex
	done   map[*outbox][]*delivery
	locked map[*outbox]lockedRows
	signal chan struct{}
}

// lockedRows are deliveries whose row somebody has locked: they are tried again, and nobody waits for them.
type lockedRows struct {
	ds     []*delivery
	wait   time.Duration
	at     time.Time
	faulty int // of them the table refused: a trigger or constraint, say
}

// stampSize is the most rows of one stamp: enough to spread its cost, few enough to end well within its time-out.
const stampSize = 1000

func newStamper(r *Relay, log zerolog.Logger) *stamper {
	return &stamper{relay: r, log: log, done: map[*outbox][]*delivery{}, locked: map[*outbox]lockedRows{}, signal: make(chan struct{}, 1)}
}

// settle takes deliveries with their verdicts. It never blocks; what it holds is bounded by what may be in flight.
func (s *stamper) settle(ds []*delivery) {
	s.mu.Lock()
	for _, d := range ds {
		o := s.relay.outboxOf[d.table]
		s.done[o] = append(s.done[o], d)
	}
	s.mu.Unlock()
	signal(s.signal)
}

// run stamps until ctx ends. It waits out servers that are gone.
func (s *stamper) run(ctx context.Context) error {
	defer func() { CloseSession(s.conn) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(s.pause(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-s.signal:
		case <-timer.C:
		}
		s.round(ctx)
	}
}

func (s *stamper) pause(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := time.Hour
	for _, l := range s.locked {
		wait = min(wait, max(0, l.at.Sub(now)))
	}
	for o := range s.done {
		wait = min(wait, max(0, o.hush.until().Sub(now)))
	}
	return wait
}

// round stamps what has gathered of each table until nothing is left that may be stamped now.
func (s *stamper) round(ctx context.Context) {
	for ctx.Err() == nil {
		o, ds := s.take(time.Now())
		if o == nil {
			return
		}
		if err := s.connected(ctx); err != nil {
			s.settle(ds)
			return
		}
		s.stampAll(ctx, o, ds)
	}
}

// take chooses a table and up to stampSize of its deliveries.
func (s *stamper) take(now time.Time) (*outbox, []*delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, l := range s.locked {
		if !l.at.After(now) {
			s.done[o] = append(s.done[o], l.ds...)
			// The wait is kept: it goes on doubling while the rows stay locked.
			s.locked[o] = lockedRows{wait: l.wait, at: now.Add(time.Hour)}
		}
	}
	for o, ds := range s.done {
		if o.hush.until().After(now) {
			continue
		}
		n := min(len(ds), stampSize)
		if n == len(ds) {
			delete(s.done, o)
		} else {
			s.done[o] = ds[n:]
		}
		return o, ds[:n:n]
	}
	return nil, nil
}

// connected makes sure of a session, waiting between tries, until ctx ends. Nothing is claimed meanwhile: what is sent and can't be
// stamped goes again should the process die.
func (s *stamper) connected(ctx context.Context) error {
	wait := newReconnect(s.log.With().Str("session", "stamp").Logger())
	for s.conn == nil || s.conn.IsClosed() {
		conn, err := s.relay.connect(ctx, "pgrelay stamp")
		if err == nil {
			s.conn = conn
			break
		}
		s.away.Store(true)
		if wait.after(ctx, err); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	wait.reset()
	if s.away.Swap(false) {
		signal(s.relay.work)
	}
	return nil
}

// stampAll stamps deliveries of one table and acts on what the statement says of each.
func (s *stamper) stampAll(ctx context.Context, o *outbox, ds []*delivery) {
	if s.conn == nil { // lost by the first half
		s.settle(ds)
		return
	}
	limited, cancel := context.WithTimeout(ctx, statementMost)
	defer cancel()
	left := ds
	answers, err := s.stamp(limited, o.table, ds)
	if err == nil {
		left, err = s.heed(limited, o, ds, answers)
	}
	switch {
	case err == nil:
		o.hush.clear(s.log, o.table.Name)
	case ctx.Err() != nil || sessionLost(s.conn, err):
		// Whether it was committed is found out by stamping again: what is no longer held is read back.
		CloseSession(s.conn)
		s.conn = nil
		s.settle(left)
	case RowFault(err) && len(left) > 1:
		s.stampAll(ctx, o, left[:len(left)/2])
		s.stampAll(ctx, o, left[len(left)/2:])
	case RowFault(err) && s.keepFaulty(o, left):
		if !left[0].refused {
			left[0].refused = true
			s.log.Error().Str("outbox", o.table.Name).Str("id", left[0].row.ID).Str("error", PublicError(err)).
				Msg("the table refuses the stamp of a row; trying again, others go on")
		}
	default:
		o.hush.fail(time.Now(), s.log, o.table.Name, "stamping", err)
		s.settle(left)
	}
}

var outcomeNames = map[verdictKind]string{
	verdictBack: "back", verdictDelivered: "delivered", verdictRetry: "retry", verdictUnknown: "unknown", verdictDead: "dead",
	verdictUncertain: "uncertain", verdictDropped: "dropped",
}

// stamp runs the statement and returns what it said of each id; ids that it did not hold are missing.
func (s *stamper) stamp(ctx context.Context, t *Table, ds []*delivery) (map[string]string, error) {
	n := len(ds)
	claims, ids, versions, outcomes := make([]int64, n), make([]string, n), make([]string, n), make([]string, n)
	delays, charges, had := make([]float64, n), make([]int32, n), make([]bool, n)
	events, kinds, reasons, details := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	holds := make([]*string, n)
	distinct := map[int64]int64{}
	for i, d := range ds {
		v := d.verdict
		claims[i], ids[i], versions[i], outcomes[i] = d.claim, d.row.ID, d.row.Version, outcomeNames[v.kind]
		delays[i], had[i], events[i], kinds[i] = v.delay.Seconds(), d.had, storable(s.conn, d.eventID()), storable(s.conn, d.row.Kind)
		reasons[i], details[i] = storable(s.conn, v.reason), storable(s.conn, v.detail)
		if v.kind == verdictDead || v.kind == verdictUncertain {
			holds[i] = d.holds()
		}
		if !d.unsent && (v.kind == verdictRetry || v.kind == verdictDead) {
			charges[i] = 1
		}
		distinct[d.claim] = d.epoch
	}
	var open, epochs []int64
	for claim, epoch := range distinct {
		open, epochs = append(open, claim), append(epochs, epoch)
	}
	rows, err := s.conn.Query(ctx, t.sql.stamp, claims, ids, versions, outcomes, delays, charges, had, events, kinds, reasons, details, open, epochs, holds)
	if err != nil {
		return nil, err
	}
	answers := make(map[string]string, n)
	var id, what string
	_, err = pgx.ForEachRow(rows, []any{&id, &what}, func() error {
		answers[id] = what
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// heed lets go of what was stamped, asks again for what changed, keeps what is locked and reads back the rest. What could not be
// read back is left.
func (s *stamper) heed(ctx context.Context, o *outbox, ds []*delivery, answers map[string]string) (left []*delivery, err error) {
	var out, again, locked, refused []*delivery
	for _, d := range ds {
		switch answers[d.row.ID] {
		case "done":
			if d.verdict.kind == verdictBack {
				again = append(again, d)
			}
			out = append(out, d)
		case "changed":
			again = append(again, d)
			out = append(out, d)
			d.verdict = verdict{kind: verdictBack}
		case "settled", "gone":
			out = append(out, d)
			d.verdict = verdict{kind: verdictBack}
		case "locked":
			locked = append(locked, d)
		default:
			refused = append(refused, d)
		}
	}
	if len(refused) > 0 {
		if err = s.readBack(ctx, o, refused); err != nil {
			left, refused = refused, nil
		}
		// Those that are still pending may lie where no look goes soon.
		again = append(again, refused...)
		out = append(out, refused...)
	}
	s.finish(o, out, again, locked)
	return left, err
}

// readBack deals with deliveries whose claim is gone: an earlier stamp whose reply was lost has done them, another instance has
// released them, or a server crash took the claim back. If nobody else has led since, what is known to be delivered is marked;
// everything else is dropped, and found again by the poller if it is still pending.
func (s *stamper) readBack(ctx context.Context, o *outbox, ds []*delivery) error {
	epoch, since := s.relay.epochs()
	var ids, versions, found []string
	for _, d := range ds {
		if d.verdict.kind == verdictDelivered && d.epoch >= since {
			ids, versions, found = append(ids, d.row.ID), append(versions, d.row.Version), append(found, d.found)
		}
	}
	marked := []string{}
	if len(ids) > 0 {
		rows, err := s.conn.Query(ctx, o.table.sql.rescue, ids, versions, s.relay.instance, epoch, found)
		if err == nil {
			marked, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return fmt.Errorf("marking what was delivered: %w", err)
		}
	}
	for _, d := range ds {
		if d.verdict.kind != verdictDelivered || !slices.Contains(marked, d.row.ID) {
			d.verdict = verdict{kind: verdictBack} // nothing is remembered of it
		}
	}
	return nil
}

// finish takes rows out of flight, remembers them, and wakes whoever waited for them.
func (s *stamper) finish(o *outbox, out, again, locked []*delivery) {
	now := time.Now()
	lines := map[lineKey]bool{}
	for _, d := range out {
		s.remember(o, d, now)
		if d.line != "" {
			lines[d.lineKey()] = !d.holdsOn()
		}
	}
	again = append(again, s.relay.flights.remove(out)...)
	wants := make([]want, 0, len(again))
	for _, d := range again {
		wants = append(wants, want{id: d.row.ID, xid: -1, source: sourcePoller})
	}
	o.requeue(wants)
	for line, free := range lines {
		if free && !s.relay.flights.hasLine(line) {
			o.inbox.wake(line, 2*lineRun)
		}
	}
	s.keepLocked(o, locked, now)
}

func (s *stamper) remember(o *outbox, d *delivery, now time.Time) {
	switch d.verdict.kind {
	case verdictDelivered:
		s.relay.recent.settle(o.table, d.row.ID, d.lsn, now)
	case verdictDead, verdictUncertain:
		s.relay.recent.settle(o.table, d.row.ID, d.lsn, time.Time{})
		s.relay.died(o.table, d.row.ID, d.row.Kind, d.loggable())
	case verdictDropped:
		s.relay.recent.settle(o.table, d.row.ID, d.lsn, time.Time{})
		s.relay.dropped(d)
	case verdictRetry, verdictUnknown, verdictBack:
		if d.verdict.kind != verdictBack {
			s.relay.looker.Due(o.table, d.verdict.delay)
		}
		if d.line != "" {
			s.relay.recent.lows.Remove(d.lineKey())
		}
		return
	}
	// A row that died before its turn has earlier ones of its line in front of it, and one that holds its line may come back.
	if d.line != "" && !d.unsent && !d.holdsOn() && o.table.lows() {
		s.relay.recent.raiseLow(d.lineKey(), d.row.ID, d.claimed)
	}
}

func (s *stamper) keepLocked(o *outbox, locked []*delivery, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(locked) == 0 {
		if l := s.locked[o]; len(l.ds) == 0 {
			delete(s.locked, o)
		}
		return
	}
	l := s.locked[o]
	if len(l.ds) == 0 { // else they join those that wait: were the time put off for each, it might never come
		l.wait = min(max(lockedWait, 2*l.wait), s.relay.cfg.Interval)
		l.at = now.Add(l.wait)
	}
	l.ds = append(l.ds, locked...)
	s.locked[o] = l
}

// keepFaulty keeps the one row whose stamp the table refuses as if it were locked. It returns false when there are too many
// for the row to be at fault.
func (s *stamper) keepFaulty(o *outbox, one []*delivery) bool {
	s.mu.Lock()
	l := s.locked[o]
	few := l.faulty < faultyMost
	if few {
		l.faulty++
		s.locked[o] = l
	}
	s.mu.Unlock()
	if few {
		s.keepLocked(o, one, time.Now())
	}
	return few
}

// faultyMost bounds the statements that it takes to find them, some twenty each.
const faultyMost = 10

// signal wakes a loop that waits on a channel of size one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
