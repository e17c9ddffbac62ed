package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is an ordinary connection, a pool or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SlotState is what the server says about a slot.
type SlotState struct {
	Exists    bool
	Database  string // empty for a physical slot
	Plugin    string // empty for a physical slot
	Temporary bool
	// Foreign says that it is of another database than the one asked, or not of pgoutput.
	Foreign bool
	Holder  Holder
	// WALStatus is reserved, extended, unreserved or lost; empty where the server doesn't say.
	WALStatus string
	// Lost says that it can never be read again: WAL that it needs is gone, or it was invalidated.
	Lost bool
	// LostReason is the server's word for it, where it has one.
	LostReason        string
	RestartLSN        string // empty: none
	ConfirmedFlushLSN string // empty: none
	// RetainedBytes is the WAL that is kept for it, LagBytes what it has not confirmed. Both
	// are 0 when the slot is lost: look at Lost first.
	RetainedBytes int64
	LagBytes      int64
	// SafeBytes is what may still be written before the slot is in danger; nil: max_slot_wal_keep_size sets no limit.
	SafeBytes *int64
}

// Holder is the process that reads a slot; its PID is 0 if nobody does.
type Holder struct {
	PID         int32
	Application string
	Address     string // empty: a local socket, or ours not to know
}

// String names the holder for a person.
func (h Holder) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "process %d", h.PID)
	if h.Application != "" {
		fmt.Fprintf(&b, " (%s)", h.Application)
	}
	if h.Address != "" {
		b.WriteString(" from " + h.Address)
	}
	return b.String()
}

// inspectSQL reads conflicting (16) and invalidation_reason (17) through jsonb, so
// that it is one statement for all versions. The slot's restart_lsn is NULL once it
// is lost, and so would be everything that is reckoned from it.
const inspectSQL = `SELECT coalesce(s.database, ''), coalesce(s.plugin, ''), s.temporary,
  s.database IS DISTINCT FROM current_database() OR s.plugin IS DISTINCT FROM 'pgoutput',
  coalesce(s.active_pid, 0), coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''),
  coalesce(s.wal_status, ''), coalesce((to_jsonb(s)->>'conflicting')::boolean, false), coalesce(to_jsonb(s)->>'invalidation_reason', ''),
  coalesce(s.restart_lsn::text, ''), coalesce(s.confirmed_flush_lsn::text, ''),
  coalesce((w.lsn - s.restart_lsn)::bigint, 0), coalesce(greatest(w.lsn - s.confirmed_flush_lsn, 0)::bigint, 0), s.safe_wal_size
FROM pg_catalog.pg_replication_slots s
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
CROSS JOIN (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS lsn) w
WHERE s.slot_name = $1`

// Inspect asks the server about a slot. One that isn't there is no error.
func Inspect(ctx context.Context, db DB, slot string) (SlotState, error) {
	st := SlotState{Exists: true}
	var conflicting bool
	err := db.QueryRow(ctx, inspectSQL, slot).Scan(&st.Database, &st.Plugin, &st.Temporary, &st.Foreign,
		&st.Holder.PID, &st.Holder.Application, &st.Holder.Address,
		&st.WALStatus, &conflicting, &st.LostReason, &st.RestartLSN, &st.ConfirmedFlushLSN,
		&st.RetainedBytes, &st.LagBytes, &st.SafeBytes)
	if errors.Is(err, pgx.ErrNoRows) {
		return SlotState{}, nil
	}
	if err != nil {
		return SlotState{}, fmt.Errorf("reading slot %s: %w", slot, err)
	}
	if st.LostReason == "" && conflicting {
		st.LostReason = "conflict"
	}
	st.Lost = st.WALStatus == "lost" || st.LostReason != ""
	if st.Lost {
		st.RetainedBytes, st.LagBytes = 0, 0
	}
	return st, nil
}

// Drop removes a slot for good. It refuses one that somebody reads, naming who, and
// one of another database or plugin; one that isn't there is [ErrNoSlot].
func Drop(ctx context.Context, db DB, slot string) error {
	st, err := Inspect(ctx, db, slot)
	switch {
	case err != nil:
		return err
	case !st.Exists:
		return fmt.Errorf("slot %s: %w", slot, ErrNoSlot)
	case st.Foreign:
		return foreignSlot(slot, &st)
	case st.Holder.PID != 0:
		return heldSlot(slot, st.Holder)
	}
	return dropSlot(ctx, db, slot)
}

func dropSlot(ctx context.Context, db DB, slot string) error {
	_, err := db.Exec(ctx, `SELECT pg_catalog.pg_drop_replication_slot($1)`, slot)
	switch sqlState(err) {
	case codeUndefinedObject:
		return fmt.Errorf("slot %s: %w", slot, ErrNoSlot)
	case codePrivilege:
		return connectFault(err)
	}
	if err != nil {
		return fmt.Errorf("dropping slot %s: %w", slot, err)
	}
	return nil
}

func foreignSlot(slot string, st *SlotState) error {
	what := fmt.Sprintf("belongs to database %q and plugin %q", st.Database, st.Plugin)
	if st.Plugin == "" {
		what = "is a physical one"
	}
	return &Unavailable{Reason: ReasonSlotForeign, Detail: fmt.Sprintf(
		"slot %s %s: configure another replication.slot, or drop it if nobody needs it", slot, what)}
}

func heldSlot(slot string, h Holder) error {
	return &Unavailable{Reason: ReasonSlotHeld, Detail: fmt.Sprintf("slot %s is read by %s: stop it, or run SELECT pg_terminate_backend(%d)", slot, h, h.PID)}
}

// slotAction is what the preflight does about the slot.
type slotAction uint8

const (
	slotUse slotAction = iota
	slotCreate
	slotReplace
)

// Why a slot is made anew.
const (
	replaceMissing     = "missing"
	replaceLost        = "lost"
	replaceOverBudget  = "over_budget"
	replaceUnfinished  = "unfinished" // its creation was cut off
	replaceLasting     = "not_temporary"
	replacePublication = "publication" // it is older than the publication, whose rows it can't decode
)

// decide says what to do about a slot that nobody else may be using.
func (st *SlotState) decide(cfg *Config, olderThanPublication bool) (slotAction, string, error) {
	switch {
	case !st.Exists:
		return slotCreate, replaceMissing, nil
	case st.Foreign:
		return slotUse, "", foreignSlot(cfg.Slot, st)
	case st.Holder.PID != 0:
		return slotUse, "", heldSlot(cfg.Slot, st.Holder)
	case st.Lost:
		return slotReplace, replaceLost, nil
	case st.ConfirmedFlushLSN == "":
		return slotReplace, replaceUnfinished, nil
	case olderThanPublication:
		return slotReplace, replacePublication, nil
	case cfg.Temporary:
		return slotReplace, replaceLasting, nil
	case st.overBudget(cfg.MaxRetainedWAL):
		return slotReplace, replaceOverBudget, nil
	}
	return slotUse, "", nil
}

func (st *SlotState) overBudget(most int64) bool { return most > 0 && st.RetainedBytes > most }
