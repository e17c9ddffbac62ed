package chaos_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// samples are what is looked at each second.
type samples struct {
	mu     sync.Mutex
	memory int64           // the most of any process, bytes
	lag    int64           // the most of the slot, bytes
	moves  map[string]bool // confirmed positions of the slot
	taken  int             // looks at a slot that was there
}

// sample watches memory and slot until ctx ends.
func (w *world) sample(ctx context.Context) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			closeConn(conn)
		}
	}()
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		for _, i := range w.instances {
			w.samples.remember(i.current().memory())
		}
		if conn == nil || conn.IsClosed() {
			conn, _ = w.connect(ctx)
		}
		if conn == nil {
			continue
		}
		var position string
		var lag int64
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		if conn.QueryRow(limited, `SELECT confirmed_flush_lsn::text, (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint
			FROM pg_replication_slots WHERE database = current_database() AND confirmed_flush_lsn IS NOT NULL`).Scan(&position, &lag) == nil {
			w.samples.slot(position, lag)
		}
		cancel()
	}
}

func (s *samples) remember(memory int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = max(s.memory, memory)
}

func (s *samples) slot(position string, lag int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moves == nil {
		s.moves = map[string]bool{}
	}
	s.moves[position] = true
	s.lag = max(s.lag, lag)
	s.taken++
}

// settle waits until nothing is pending or in flight. What is dead and holds its key is retried.
func (w *world) settle() error {
	return w.retry(patience, func() error {
		if err := w.free(); err != nil {
			return err
		}
		return w.expect("0 pending, 0 claimed", `SELECT (SELECT count(*) FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL)
			+ (SELECT count(*) FROM public.mail WHERE sent_at IS NULL) + (SELECT count(*) FROM public.backfill WHERE state IN ('PENDING', 'PROCESSING')) || ' pending, ' || (SELECT coalesce(sum(cardinality(ids)), 0) FROM pgrelay.claims) || ' claimed'`)
	})
}

// confirm waits until the slot has confirmed everything that was written by now.
func (w *world) confirm() error {
	var now string
	err := w.retry(patience, func() (err error) { now, err = w.ask(`SELECT pg_current_wal_lsn()::text`); return err })
	if err != nil {
		return err
	}
	return w.retry(patience, func() error {
		return w.expect("confirmed", `SELECT CASE WHEN confirmed_flush_lsn >= $1::pg_lsn THEN 'confirmed' ELSE confirmed_flush_lsn || ' of ' || $1 END
			FROM pg_replication_slots WHERE database = current_database()`, now)
	})
}

func (w *world) ask(sql string, args ...any) (answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := w.connect(ctx)
	if err != nil {
		return "", err
	}
	defer closeConn(conn)
	err = conn.QueryRow(ctx, sql, args...).Scan(&answer)
	return answer, err
}

func (w *world) expect(want, sql string, args ...any) error {
	got, err := w.ask(sql, args...)
	if err == nil && got != want {
		err = fmt.Errorf("%s, not %s", got, want)
	}
	return err
}
