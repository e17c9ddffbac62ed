package replication

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Reasons of an [Unavailable].
const (
	ReasonWALLevel    = "wal_level"    // the server's WAL carries no rows
	ReasonPermission  = "permission"   // the role may not replicate
	ReasonPooler      = "pooler"       // something between us and the server refuses replication
	ReasonSenders     = "wal_senders"  // no WAL sender or connection is free
	ReasonSlots       = "slots"        // no slot is free
	ReasonSlotHeld    = "slot_held"    // somebody else reads our slot
	ReasonSlotForeign = "slot_foreign" // the slot is of another database or plugin
	ReasonSlotBlocked = "slot_blocked" // an open transaction keeps the slot from being made
	ReasonPublication = "publication"  // the publication doesn't carry the tables and isn't ours to alter
)

// ErrNoSlot says that there is no slot of that name.
var ErrNoSlot = errors.New("no such replication slot")

// Unavailable says why there is no stream and what a person does about it.
type Unavailable struct {
	Reason string // one of the Reason constants: stable, a metric label
	Detail string // a sentence for a person: what is wrong and how to mend it
	Err    error  // the server's error, if that is what told us
}

// Error implements error.
func (u *Unavailable) Error() string {
	if u.Err == nil {
		return u.Detail
	}
	return fmt.Sprintf("%s (%v)", u.Detail, u.Err)
}

// Unwrap gives the server's error.
func (u *Unavailable) Unwrap() error { return u.Err }

// SQLSTATEs that decide what happens next.
const (
	codeProtocolViolation = "08P01"
	codeFeature           = "0A000"
	codeInvalidParameter  = "22023"
	codePrivilege         = "42501"
	codeUndefinedObject   = "42704"
	codeConnections       = "53300"
	codeConfigLimit       = "53400"
	codeNotReady          = "55000"
	codeInUse             = "55006"
)

func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// connectFault names what a refused replication connection means where an ordinary
// one to the same server has just worked.
func connectFault(err error) error {
	switch sqlState(err) {
	case codePrivilege:
		return &Unavailable{ReasonPermission, "the role may not replicate: run ALTER ROLE … REPLICATION, " +
			"or grant it the provider's replication role (rds_replication on Amazon RDS)", err}
	case codeConnections:
		return &Unavailable{ReasonSenders, "no WAL sender or connection is free: raise max_wal_senders (needs a restart) or end one of pg_stat_replication", err}
	case codeProtocolViolation, codeFeature:
		return pooler(err)
	}
	return fmt.Errorf("connecting for replication: %w", err)
}

func pooler(err error) error {
	return &Unavailable{ReasonPooler, "whoever answers does not take a replication session: connect directly to PostgreSQL, not through a pooler", err}
}

// createFault names what a refused slot means.
func createFault(err error) error {
	switch sqlState(err) {
	case codePrivilege:
		return connectFault(err)
	case codeConfigLimit:
		return &Unavailable{ReasonSlots, "no replication slot is free: raise max_replication_slots (needs a restart) " +
			"or drop one that nobody uses, see pg_replication_slots", err}
	case codeNotReady:
		return &Unavailable{ReasonWALLevel, walLevelDetail, err}
	}
	return fmt.Errorf("creating the slot: %w", err)
}

const walLevelDetail = "wal_level is not logical: set wal_level = logical (rds.logical_replication = 1 on Amazon RDS) and restart the server"
