package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// advisoryLock is the key of the lock that makes one instance of a database the leader ("pgrelay" in ASCII).
// Advisory locks are a database's own, so one key serves every database of a server.
const advisoryLock int64 = 0x706772656c6179

const (
	lockInterval = 500 * time.Millisecond // between tries of a standby
	pingInterval = time.Second
	// glanceInterval is how often an idle session is tried with an empty query, so that one which the server has ended stops the
	// sending long before a ping would show it: by then another instance may lead.
	glanceInterval = 200 * time.Millisecond
	// leadFresh is how old the last good ping may be for a message to be sent: less than the server takes to
	// end a silent session (5 s), by a margin for a call that is already under way.
	leadFresh = 3 * time.Second
	// holderDead is how long a holder must have been silent, in the table and on its session, before a standby
	// ends its backend: for servers without idle_session_timeout.
	holderDead = 10 * time.Second
)

// leader is the session that holds the lock and makes the claims. One goroutine owns it; only fresh is safe for
// concurrent use.
type leader struct {
	conn     *pgx.Conn
	instance uuid.UUID
	epoch    int64
	seen     time.Time    // when the leader row last said that this instance is alive
	pinged   atomic.Int64 // when the last good round trip began, since start, on the monotonic clock
	start    time.Time
	ended    atomic.Bool
}

// lead is what taking the lock found.
type lead struct {
	epoch int64
	own   bool // the last leader was this instance, in the epoch that it knew: nobody has led since
}

// errHeld says that another session holds the lock.
var errHeld = errors.New("another instance leads")

// errLeadLost ends a lead whose leader row names somebody else.
var errLeadLost = errors.New("the leader row names another instance")

// tryLead takes the lock if it is free and enters the new lead. It returns errHeld if it isn't.
func tryLead(ctx context.Context, conn *pgx.Conn, instance uuid.UUID, lastEpoch int64) (*leader, lead, error) {
	l := &leader{conn: conn, instance: instance, start: time.Now()}
	var got bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, advisoryLock).Scan(&got); err != nil {
		return nil, lead{}, fmt.Errorf("trying the leader lock: %w", err)
	}
	if !got {
		return nil, lead{}, errHeld
	}
	if err := l.settings(ctx); err != nil {
		return nil, lead{}, err
	}
	var found lead
	var before *uuid.UUID
	var epochBefore *int64
	// Durable on this server (not on a standby, which may be absent): stamps are fenced by epochs.
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = local`); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `SELECT instance, epoch FROM pgrelay.leader`).Scan(&before, &epochBefore)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return tx.QueryRow(ctx, `
			INSERT INTO pgrelay.leader AS l (instance, epoch, seen_at) VALUES ($1, 1, clock_timestamp())
			    ON CONFLICT (singleton) DO UPDATE SET instance = excluded.instance, epoch = l.epoch + 1, seen_at = excluded.seen_at
			RETURNING epoch`, instance).Scan(&found.epoch)
	})
	if err != nil {
		return nil, lead{}, fmt.Errorf("entering the lead: %w", err)
	}
	found.own = before != nil && *before == instance && epochBefore != nil && *epochBefore == lastEpoch
	l.epoch = found.epoch
	l.mark(time.Now())
	return l, found, nil
}

// settings make the server end the session of a frozen leader by itself.
func (l *leader) settings(ctx context.Context) error {
	var version int
	if err := l.conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return fmt.Errorf("asking for the server's version: %w", err)
	}
	set := `SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 5000`
	if version >= 140000 {
		set += `; SET idle_session_timeout = '5s'`
	}
	if _, err := l.conn.Exec(ctx, set, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("setting the leader session's time-outs: %w", err)
	}
	return nil
}

// ping keeps the session alive and shows standbys that this instance is.
func (l *leader) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leadFresh)
	defer cancel()
	began := time.Now()
	tag, err := l.conn.Exec(ctx, `UPDATE pgrelay.leader SET seen_at = clock_timestamp() WHERE instance = $1 AND epoch = $2`, l.instance, l.epoch)
	if err != nil {
		return fmt.Errorf("pinging the leader session: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errLeadLost
	}
	l.mark(began)
	l.seen = began
	return nil
}

// glance tries whether the session is still there.
func (l *leader) glance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leadFresh)
	defer cancel()
	began := time.Now()
	if err := l.conn.Ping(ctx); err != nil {
		return fmt.Errorf("trying the leader session: %w", err)
	}
	l.mark(began)
	return nil
}

// mark notes a good round trip on the session that holds the lock.
func (l *leader) mark(began time.Time) { l.pinged.Store(int64(began.Sub(l.start))) }

// fresh says whether the lead is fresh enough for a message to be sent. The monotonic clock runs on while the
// process is frozen.
func (l *leader) fresh() bool {
	return !l.ended.Load() && time.Since(l.start)-time.Duration(l.pinged.Load()) < leadFresh
}

// endDeadHolder ends the backend of a holder that has been silent, in the leader row and on its session, for
// holderDead. It says whom it ended.
func endDeadHolder(ctx context.Context, conn *pgx.Conn) (pid int, err error) {
	// MATERIALIZED: nobody's session is ended before all that makes it a dead leader's has been found true.
	err = conn.QueryRow(ctx, `
		WITH dead AS MATERIALIZED (
			SELECT l.pid FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a USING (pid)
			 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
			   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
			   AND (l.classid::bigint << 32) | l.objid::bigint = $1
			   AND a.state_change < clock_timestamp() - $2::float8 * interval '1 second'
			   AND NOT EXISTS (SELECT FROM pgrelay.leader WHERE seen_at >= clock_timestamp() - $2::float8 * interval '1 second'))
		SELECT pid FROM dead WHERE pg_terminate_backend(pid)`,
		advisoryLock, holderDead.Seconds()).Scan(&pid)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking for a dead leader: %w", err)
	}
	return pid, nil
}

// released is a row that was taken up from a claim of a dead process.
type released struct {
	id, kind string
	dies     bool // it was alone in flight once too often
}

// release takes up a table's rows from the claims of others, and takes out of this instance's claims what it does not hold in
// memory: stamps that a crash of the server took back bring ids of claims back that are otherwise held. A row that was in flight
// in a dead process counts a crash.
func (l *leader) release(ctx context.Context, t *Table, held held, maxAttempts int) (rows []released, err error) {
	err = pgx.BeginFunc(ctx, l.conn, func(tx pgx.Tx) error {
		// As durable as the takeover: a release that a crash took back would let the predecessor's stamps count again.
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = local`); err != nil {
			return err
		}
		// Locked by one statement and released by the next ones, which then see what a late stamp took out meanwhile.
		if _, err := tx.Exec(ctx, `SELECT FROM pgrelay.claims WHERE outbox = $1 ORDER BY id FOR UPDATE`, t.Name); err != nil {
			return err
		}
		var ids []string
		var alone []bool
		var claims, epochs []int64
		err := tx.QueryRow(ctx, `
			SELECT coalesce(array_agg(u.id), '{}'), coalesce(array_agg(c.alone), '{}'), coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.epoch), '{}')
			  FROM pgrelay.claims c CROSS JOIN LATERAL unnest(c.ids) AS u(id)
			 WHERE c.outbox = $1 AND c.instance <> $2`, t.Name, l.instance).Scan(&ids, &alone, &claims, &epochs)
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			if rows, err = countCrash(ctx, tx, t, ids, alone, claims, epochs, maxAttempts); err != nil {
				return err
			}
		}
		if t.hasStatus() {
			if err := giveUp(ctx, tx, t, l.instance, held); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `
			UPDATE pgrelay.claims c SET ids = ARRAY(
			       SELECT h.id FROM unnest($3::bigint[], $4::bigint[], $5::text[]) AS h(claim, epoch, id)
			        WHERE h.claim = c.id AND h.epoch = c.epoch AND h.id = ANY (c.ids))
			 WHERE c.outbox = $1 AND c.instance = $2`, t.Name, l.instance, held.claims, held.epochs, held.ids)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM pgrelay.claims WHERE outbox = $1 AND (instance <> $2 OR ids = '{}')`, t.Name, l.instance)
		return err
	})
	return rows, err
}

// giveUp sets back what is in this instance's claims and not held in memory.
func giveUp(ctx context.Context, tx pgx.Tx, t *Table, instance uuid.UUID, held held) error {
	var lost []string
	err := tx.QueryRow(ctx, `
		SELECT coalesce(array_agg(u.id), '{}') FROM pgrelay.claims c CROSS JOIN LATERAL unnest(c.ids) AS u(id)
		 WHERE c.outbox = $1 AND c.instance = $2 AND NOT EXISTS (
		       SELECT FROM unnest($3::text[]) AS h(id) WHERE h.id = u.id)`, t.Name, instance, held.ids).Scan(&lost)
	if err != nil || len(lost) == 0 {
		return err
	}
	_, err = tx.Exec(ctx, t.sql.giveUp, lost)
	return err
}

func countCrash(ctx context.Context, tx pgx.Tx, t *Table, ids []string, alone []bool, claims, epochs []int64, maxAttempts int) ([]released, error) {
	rows, err := tx.Query(ctx, t.sql.release, ids, alone, claims, maxAttempts, epochs)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r released, err error) {
		err = row.Scan(&r.id, &r.kind, &r.dies)
		return r, err
	})
}

// forgetUnknown deletes the claims of outboxes that are not configured any more.
func (l *leader) forgetUnknown(ctx context.Context, outboxes []string) error {
	if _, err := l.conn.Exec(ctx, `DELETE FROM pgrelay.claims WHERE NOT outbox = ANY ($1)`, outboxes); err != nil {
		return fmt.Errorf("deleting claims of other outboxes: %w", err)
	}
	return nil
}

// lately says whether the last ping is younger than the ping interval. Claims keep the lead fresh, but only pings
// show it to others.
func (l *leader) lately() bool { return time.Since(l.seen) < pingInterval }

// keep pings until ctx ends or the session is lost: while a drain goes on nobody else may lead.
func (l *leader) keep(ctx context.Context) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		if err := l.ping(ctx); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
