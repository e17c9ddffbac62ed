package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// round does works of one table in one transaction and tells whoever waits for them.
func (s *sends) round(ctx context.Context, works []*sendWork, wait *reconnect) {
	table, used := works[0].table, s.conn != nil
	if err := s.connected(ctx); err != nil {
		s.away(works, err)
		wait.after(ctx, err)
		return
	}
	wait.reset()
	limited, cancel := context.WithTimeout(ctx, statementMost)
	defer cancel()
	committing, err := s.transact(limited, table, works)
	quiet := s.quietOf(table)
	switch {
	case err == nil:
		quiet.clear(s.log, table.Name)
	case sessionLost(s.conn, err):
		CloseSession(s.conn)
		s.conn = nil
		if used && !committing { // ended while it was idle
			s.round(ctx, works, wait)
			return
		}
		s.lost(works, committing, err)
	case RowFault(err) && len(works) > 1:
		s.round(ctx, works[:len(works)/2], wait)
		s.round(ctx, works[len(works)/2:], wait)
	case RowFault(err):
		s.refused(works[0], err)
	default:
		quiet.fail(time.Now(), s.log, table.Name, "claiming sends", err)
		s.away(works, err)
	}
}

func (s *sends) quietOf(t *SendTable) *quiet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.queues[t.Name].quiet
}

// connected makes sure of a session. Its commits wait for the disk and for a synchronous standby, unlike all others of the relay: a claim
// that a crash takes back would let a message go twice.
func (s *sends) connected(ctx context.Context) error {
	if s.conn != nil && !s.conn.IsClosed() {
		return nil
	}
	conn, err := s.relay.connect(ctx, "pgrelay sends", func(c *pgx.ConnConfig) { c.RuntimeParams["synchronous_commit"] = "on" })
	s.conn = conn
	return err
}

// transact does works in one transaction, whose commit is a round trip of its own: by then the claims' tokens are known. committing says
// that an error leaves open whether it was committed.
func (s *sends) transact(ctx context.Context, table *SendTable, works []*sendWork) (committing bool, err error) {
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	b := sendBatch{sends: s, table: table}
	b.queue(works)
	if err := tx.SendBatch(ctx, &b.Batch).Close(); err != nil {
		_ = tx.Rollback(ctx) // the statement's error is what counts
		return false, err
	}
	if err := tx.Commit(ctx); err != nil {
		return true, err
	}
	for _, w := range works {
		if b.running[w] {
			w.at = time.Now().Add(lockedWait)
			s.push(w)
			continue
		}
		s.end(w)
	}
	return false, nil
}

// away answers claims that could not be made, for certain, and keeps the rest for later.
func (s *sends) away(works []*sendWork, why error) {
	for _, w := range works {
		if w.making() {
			w.state, w.detail = claimAway, PublicError(why)
			s.end(w)
			continue
		}
		s.push(w)
	}
}

// lost does so where the commit may have been one: then nothing is sent for the claims, and they are released when there is a session again.
func (s *sends) lost(works []*sendWork, committing bool, why error) {
	var rest []*sendWork
	for _, w := range works {
		if !committing || !w.making() || w.state != claimTaken {
			rest = append(rest, w)
			continue
		}
		old := *w.sendClaim
		old.end = endReleased
		s.push(&sendWork{sendClaim: &old})
		w.state, w.detail = claimAway, PublicError(why)
		w.finish() // and is busy until its release
	}
	s.away(rest, why)
}

// refused lets go of the one step that the table refuses: a constraint, say, or a trigger.
func (s *sends) refused(w *sendWork, why error) {
	if w.making() {
		w.state, w.detail = claimRefused, PublicError(why)
	} else if write, _ := s.relay.lines.line(time.Now(), w.table.Name+" sends"); write {
		s.log.Error().Str("sends", w.table.Name).Str("event_id", w.event).Str("error", PublicError(why)).
			Msg("the outcome of a send can't be written; its claim stays as it is")
	}
	s.end(w)
}

// sendBatch are the statements of one transaction.
type sendBatch struct {
	pgx.Batch
	sends   *sends
	table   *SendTable
	running map[*sendWork]bool // releases of claims whose transaction has not ended
}

// queue makes the statements, each for all works of a kind. A work of a lead before the last of somebody else's is left alone.
func (b *sendBatch) queue(works []*sendWork) {
	last, since := b.sends.relay.epochs()
	var making, sent, kept, released []*sendWork
	for _, w := range works {
		switch {
		case w.making():
			w.state, w.token = claimLost, ""
			if w.epoch >= since {
				making = append(making, w)
			}
		case w.end == endSent:
			sent = append(sent, w)
		case w.end == endKept && b.table.lastError != "":
			kept = append(kept, w)
		case w.end == endReleased && w.epoch >= since:
			released = append(released, w)
		}
	}
	instance := b.sends.relay.instance
	if len(sent) > 0 {
		b.Queue(b.table.sql.sent, append(keysOf(sent), texts(sent, tokenOf))...)
	}
	if len(kept) > 0 {
		why := texts(kept, func(w *sendWork) string { return storable(b.sends.conn, w.detail) })
		b.Queue(b.table.sql.keep, append(keysOf(kept), texts(kept, tokenOf), why)...)
	}
	if len(released) > 0 {
		b.Queue(b.table.sql.release, append(keysOf(released), instance, last, texts(released, tokenOf))...).Query(func(rows pgx.Rows) error {
			b.running = map[*sendWork]bool{}
			var n int
			_, err := pgx.ForEachRow(rows, []any{&n}, func() error { b.running[released[n-1]] = true; return nil })
			return err
		})
	}
	if len(making) > 0 {
		b.Queue(b.table.sql.claim, append(keysOf(making), instance, last)...).Query(func(rows pgx.Rows) error {
			var n int
			var token string
			_, err := pgx.ForEachRow(rows, []any{&n, &token}, func() error {
				making[n-1].state, making[n-1].token = claimTaken, token
				return nil
			})
			return err
		})
		b.Queue(b.table.sql.state, append(keysOf(making), instance, last)...).Query(func(rows pgx.Rows) error {
			var n int
			var there, sent, leads bool
			_, err := pgx.ForEachRow(rows, []any{&n, &there, &sent, &leads}, func() error {
				if w := making[n-1]; w.state != claimTaken {
					w.state, w.detail = standing(there, sent, leads)
				}
				return nil
			})
			return err
		})
	}
}

// standing is what a claim comes to that was not made.
func standing(there, sent, leads bool) (state claimState, detail string) {
	switch {
	case sent:
		return claimSent, ""
	case there:
		return claimHeld, ""
	case !leads:
		return claimLost, ""
	default:
		return claimRefused, "the table took the claim and did not keep it; look at its triggers"
	}
}

func keysOf(works []*sendWork) []any {
	return []any{
		texts(works, func(w *sendWork) string { return w.event }), texts(works, func(w *sendWork) string { return w.recipient }),
		texts(works, func(w *sendWork) string { return w.kind }),
	}
}

func tokenOf(w *sendWork) string { return w.token }

func texts(works []*sendWork, of func(*sendWork) string) []string {
	all := make([]string, len(works))
	for i, w := range works {
		all[i] = of(w)
	}
	return all
}
