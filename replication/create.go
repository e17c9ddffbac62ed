package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const failoverVersion = 17

// creator makes a slot on the connection that will stream from it. sql is an ordinary
// connection beside it: while the server makes the slot it waits for every transaction
// that is open, in any database, and does not answer meanwhile.
type creator struct {
	cfg    *Config
	sql    *pgx.Conn
	stream *pgconn.PgConn
	within time.Duration
}

func (c *creator) command() string {
	if c.cfg.Temporary {
		return "CREATE_REPLICATION_SLOT " + c.cfg.Slot + " TEMPORARY LOGICAL " + plugin + " NOEXPORT_SNAPSHOT"
	}
	if c.cfg.Failover && serverMajor(c.stream) >= failoverVersion {
		return "CREATE_REPLICATION_SLOT " + c.cfg.Slot + " LOGICAL " + plugin + " (SNAPSHOT 'nothing', FAILOVER true)"
	}
	return "CREATE_REPLICATION_SLOT " + c.cfg.Slot + " LOGICAL " + plugin + " NOEXPORT_SNAPSHOT"
}

// create makes the slot or, after a while, names who stands in its way.
func (c *creator) create(ctx context.Context) error {
	// Should this process die now, the server would go on waiting with the half-made
	// slot: the timeout is for then.
	if err := c.setLockTimeout(ctx, 2*c.within); err != nil {
		return err
	}
	execCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := c.stream.Exec(execCtx, c.command()).ReadAll()
		done <- err
	}()
	timer := time.NewTimer(c.within)
	defer timer.Stop()
	select {
	case err := <-done: // also when ctx ends
		if err != nil {
			return createFault(err)
		}
		return c.setLockTimeout(ctx, 0)
	case <-timer.C:
	}
	blocked := &Unavailable{Reason: ReasonSlotBlocked, Detail: fmt.Sprintf("slot %s cannot be made before %s ends", c.cfg.Slot, c.blocker(ctx))}
	// A closed connection would not end the waiting backend.
	err := endBackend(ctx, c.sql, int32(c.stream.PID()))
	if err != nil {
		cancel()
	}
	<-done //nolint:errcheck // its error is our doing
	if err == nil {
		err = c.cleanUp(ctx)
	}
	return errors.Join(blocked, err)
}

func (c *creator) setLockTimeout(ctx context.Context, d time.Duration) error {
	_, err := c.stream.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", d.Milliseconds())).ReadAll()
	if err != nil {
		return fmt.Errorf("setting the lock timeout: %w", err)
	}
	return nil
}

const blockerSQL = `SELECT coalesce(a.pid, 0), coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''), a.xact_start,
  (SELECT p.gid FROM pg_catalog.pg_prepared_xacts p ORDER BY p.prepared LIMIT 1)
FROM unnest(pg_catalog.pg_blocking_pids($1)) b(pid) LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
ORDER BY a.xact_start NULLS LAST LIMIT 1`

// blocker names the transaction that is waited for. It gives the time of its start and
// not its age, so that the same blocker reads the same and is logged once.
func (c *creator) blocker(ctx context.Context) string {
	var h Holder
	var since *time.Time
	var prepared *string
	err := c.sql.QueryRow(ctx, blockerSQL, int32(c.stream.PID())).Scan(&h.PID, &h.Application, &h.Address, &since, &prepared)
	switch {
	case err != nil:
		return "an open transaction"
	case h.PID == 0 && prepared != nil:
		return fmt.Sprintf("the prepared transaction %q", *prepared)
	case since == nil:
		return "a transaction of " + h.String()
	}
	return fmt.Sprintf("the transaction of %s, open since %s,", h, since.UTC().Format(time.RFC3339))
}

// cleanUp sees to it that the half-made slot goes with its backend.
func (c *creator) cleanUp(ctx context.Context) error {
	st, err := awaitRelease(ctx, c.sql, c.cfg.Slot, int32(c.stream.PID()))
	if err != nil {
		return err
	}
	if st.Exists && !st.Foreign && st.Holder.PID == 0 && st.ConfirmedFlushLSN == "" {
		return dropSlot(ctx, c.sql, c.cfg.Slot)
	}
	return nil
}

// awaitRelease looks at the slot until the process pid has let it go, for at most finishWithin.
func awaitRelease(ctx context.Context, db DB, slot string, pid int32) (SlotState, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	give := time.NewTimer(finishWithin)
	defer give.Stop()
	for {
		st, err := Inspect(ctx, db, slot)
		if err != nil || pid == 0 || st.Holder.PID != pid {
			return st, err
		}
		select {
		case <-tick.C:
		case <-give.C:
			return st, nil
		case <-ctx.Done():
			return st, ctx.Err()
		}
	}
}

func endBackend(ctx context.Context, db DB, pid int32) error {
	if _, err := db.Exec(ctx, `SELECT pg_catalog.pg_terminate_backend($1)`, pid); err != nil {
		return fmt.Errorf("ending our own backend %d: %w", pid, err)
	}
	return nil
}
