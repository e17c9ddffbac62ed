package relay

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
)

// claimant makes and ends claims of sends, durably.
type claimant interface {
	// claim makes claims, and sets what came of each.
	claim(cs []*sendClaim)
	// settle ends claims that were taken, as each says. It returns when that is durable.
	settle(cs []*sendClaim)
}

// sendClaim is the claim of one send, from its making to its end. One goroutine owns it at a time.
type sendClaim struct {
	table *SendTable
	sendKey
	epoch int64 // the lead in which its row was claimed

	state  claimState
	token  string // the transaction that made it
	end    claimEnd
	detail string // why it could not be made, or why nobody knows its outcome
}

// sendKey is one send.
type sendKey struct{ table, event, recipient, kind string }

// claimState is what came of making a claim.
type claimState uint8

const (
	// claimAway: the database could not be asked. There is no claim, or it is released when that is known.
	claimAway claimState = iota
	// claimTaken: it is durable, and the message may be sent.
	claimTaken
	// claimSent: the message was sent before.
	claimSent
	// claimHeld: somebody else, or an earlier life, claimed it, and nobody knows whether the message arrived.
	claimHeld
	// claimRefused: the table does not take the claim of this send.
	claimRefused
	// claimLost: another instance leads.
	claimLost
)

// claimEnd is what becomes of a claim that was taken.
type claimEnd uint8

const (
	endSent claimEnd = iota + 1
	endKept
	endReleased
)

// sendWork is one step of a claim that waits for its transaction.
type sendWork struct {
	*sendClaim
	at   time.Time       // not before
	done *sync.WaitGroup // who waits for it; nil: nobody
}

// sends is the session that claims sends and ends claims, durably: one transaction for all that has gathered while it was busy. It
// outlives a lead: what was sent is marked so whoever leads.
type sends struct {
	relay *Relay
	conn  *pgx.Conn // owned by run
	log   zerolog.Logger

	mu     sync.Mutex
	queues map[string]*sendQueue // by table
	busy   map[sendKey]bool      // claims from their making to their end
	ended  bool
	idle   chan struct{} // closed while nothing waits
	signal chan struct{}
}

// sendQueue is what waits for one table.
type sendQueue struct {
	works []*sendWork
	quiet quiet
}

// sendsSize is the most claims of one transaction.
const sendsSize = 500

func newSends(r *Relay, log zerolog.Logger) *sends {
	idle := make(chan struct{})
	close(idle)
	return &sends{
		relay: r, log: log.With().Str("session", "sends").Logger(), queues: map[string]*sendQueue{}, busy: map[sendKey]bool{},
		idle: idle, signal: make(chan struct{}, 1),
	}
}

func (s *sends) claim(cs []*sendClaim)  { s.do(cs) }
func (s *sends) settle(cs []*sendClaim) { s.do(cs) }

// do puts claims in line for their next step and waits for it.
func (s *sends) do(cs []*sendClaim) {
	var done sync.WaitGroup
	works := make([]*sendWork, len(cs))
	for i, c := range cs {
		works[i] = &sendWork{sendClaim: c, done: &done}
	}
	done.Add(len(works))
	s.push(works...)
	done.Wait()
}

func (s *sends) push(works ...*sendWork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range works {
		if s.ended {
			w.finish()
			continue
		}
		q := s.queues[w.table.Name]
		if q == nil {
			q = &sendQueue{}
			s.queues[w.table.Name] = q
		}
		q.works = append(q.works, w)
	}
	s.judgeIdle()
	signal(s.signal)
}

// finish tells whoever waits.
func (w *sendWork) finish() {
	if w.done != nil {
		w.done.Done()
	}
}

// making says that the claim has yet to be made.
func (c *sendClaim) making() bool { return c.end == 0 }

// run works until ctx ends. It waits out servers that are gone.
func (s *sends) run(ctx context.Context) error {
	defer func() { CloseSession(s.conn) }()
	defer s.close()
	wait := newReconnect(s.log)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.signal:
		case <-timer.C:
		}
		for ctx.Err() == nil {
			works := s.take(time.Now())
			if len(works) == 0 {
				break
			}
			s.round(ctx, works, wait)
		}
		timer.Reset(s.pause(time.Now()))
	}
}

// take chooses works of one table, no two of one send: a claim waits for the end of an earlier one of the same send.
func (s *sends) take(now time.Time) (works []*sendWork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.judgeIdle()
	for _, q := range s.queues {
		if q.quiet.until().After(now) {
			q.works = s.refuse(q.works, q.quiet.problem())
			continue
		}
		var left []*sendWork
		for _, w := range q.works {
			if len(works) == sendsSize || w.at.After(now) || w.making() && s.busy[w.sendKey] {
				left = append(left, w)
				continue
			}
			s.busy[w.sendKey] = true
			works = append(works, w)
		}
		q.works = left
		if len(works) > 0 {
			return works
		}
	}
	return nil
}

// refuse answers those of works that want a claim while none can be made, and returns the others.
func (s *sends) refuse(works []*sendWork, why error) (left []*sendWork) {
	for _, w := range works {
		if !w.making() {
			left = append(left, w)
			continue
		}
		w.state, w.detail = claimAway, PublicError(why)
		w.finish()
	}
	return left
}

func (s *sends) pause(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := time.Hour
	for _, q := range s.queues {
		for _, w := range q.works {
			if w.making() && s.busy[w.sendKey] {
				continue // the end of the other wakes it
			}
			at := w.at
			if until := q.quiet.until(); until.After(at) {
				at = until
			}
			wait = min(wait, max(0, at.Sub(now)))
		}
	}
	return wait
}

// end lets go of claims that are not taken, or not any more, and tells whoever waits.
func (s *sends) end(works ...*sendWork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range works {
		if w.end != 0 || w.state != claimTaken {
			delete(s.busy, w.sendKey)
		}
		w.finish()
	}
}

// judgeIdle opens or closes idle. The caller holds mu.
func (s *sends) judgeIdle() {
	empty := len(s.busy) == 0
	for _, q := range s.queues {
		empty = empty && len(q.works) == 0
	}
	select {
	case <-s.idle:
		if !empty {
			s.idle = make(chan struct{})
		}
	default:
		if empty {
			close(s.idle)
		}
	}
}

// landed is closed once no claim is on its way.
func (s *sends) landed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle
}

// close answers whoever still waits: what was not made is not sent, and what was not ended stays for the next leader to find.
func (s *sends) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, q := range s.queues {
		for _, w := range q.works {
			w.finish()
		}
		q.works = nil
	}
}
