package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Ledger is the table of event ids that were published. An event that is in it is stamped and not
// sent, whatever brought its row back; the stamp of a delivered row writes it in its own
// transaction. It is immutable and safe for concurrent use.
type Ledger struct {
	Name      string // qualified, quoted where SQL needs it
	eventType string // the type of its event_id
}

// findLedger looks up the table that the configuration names and checks that entries can be looked up and written.
// What is wrong with it are the problems; an error is the connection's.
func (t *Table) findLedger(ctx context.Context, conn *pgx.Conn, facts keyFacts) (problems []error, err error) {
	given := t.cfg.Ledger
	if given == "" {
		return nil, nil
	}
	l := &Ledger{}
	var notNull []string
	var unique bool
	var recorded *string // the type of its time
	err = conn.QueryRow(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname), coalesce(e.type, ''), (
		            SELECT pg_catalog.format_type(b.oid, -1) FROM pg_catalog.pg_attribute a `+baseType+`
		             WHERE a.attrelid = c.oid AND a.attname = 'processed_at' AND NOT a.attisdropped),
		       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indisunique
		                  AND i.indnkeyatts = 1 AND i.indkey[0] = e.attnum AND i.indpred IS NULL),
		       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		                AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attname NOT IN ('event_id', 'processed_at'))
		  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		  LEFT JOIN LATERAL (SELECT a.attnum, pg_catalog.format_type(a.atttypid, -1) AS type FROM pg_catalog.pg_attribute a
		       WHERE a.attrelid = c.oid AND a.attname = 'event_id' AND NOT a.attisdropped) e ON true
		 WHERE c.oid = pg_catalog.to_regclass($1) AND c.relkind IN ('r', 'p')`, given).
		Scan(&l.Name, &l.eventType, &recorded, &unique, &notNull)
	if errors.Is(err, pgx.ErrNoRows) {
		return []error{&TableError{t.Name, "ledger: there is no table " + given + ", or this role may not see it",
			fmt.Sprintf("run: CREATE TABLE %s (event_id text PRIMARY KEY, processed_at timestamptz NOT NULL DEFAULT now())", given)}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up ledger %s of outbox %s: %w", given, t.Name, err)
	}
	refuse := func(hint, format string, args ...any) {
		problems = append(problems, &TableError{t.Name, "ledger " + l.Name + ": " + fmt.Sprintf(format, args...), hint})
	}
	switch {
	case l.eventType == "":
		refuse(fmt.Sprintf("run: ALTER TABLE %s ADD COLUMN event_id text PRIMARY KEY", l.Name), "there is no column event_id")
	case !l.takes(t.identityType(), t.identityNotNull()):
		refuse("use a ledger whose event_id is text", "its event_id is %s, which does not take every event id of this outbox", l.eventType)
	case !unique:
		refuse(fmt.Sprintf("run: CREATE UNIQUE INDEX CONCURRENTLY ON %s (event_id)", l.Name), "its event_id is not unique")
	}
	switch {
	case recorded == nil:
		refuse(fmt.Sprintf("run: ALTER TABLE %s ADD COLUMN processed_at timestamptz NOT NULL DEFAULT now()", l.Name), "there is no column processed_at")
	case !slices.Contains(timeTypes, *recorded):
		refuse(fmt.Sprintf("run: ALTER TABLE %s ALTER COLUMN processed_at TYPE timestamptz USING NULL", l.Name), "its processed_at is %s, not a time", *recorded)
	}
	for _, c := range notNull {
		refuse(fmt.Sprintf("run: ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL", l.Name, quote(c)),
			"its column %s needs a value that the relay does not have", quote(c))
	}
	if problem := t.checkIdentity("the ledger remembers events by their event id", facts); problem != nil {
		problems = append(problems, problem)
	}
	t.Ledger = l
	return problems, nil
}

// takes says whether every event id of an outbox can be cast to the ledger's type.
func (l *Ledger) takes(identity string, notNull bool) bool {
	switch l.eventType {
	case "text", "character varying":
		return true
	}
	return l.eventType == identity && notNull
}

// identityType is the type of the column that event ids come from.
func (t *Table) identityType() string {
	if c, ok := t.column(t.names.eventID); ok {
		return c.Type
	}
	return t.IDColumn.Type
}

func (t *Table) identityNotNull() bool {
	c, ok := t.column(t.names.eventID)
	return !ok || c.NotNull
}

// identity is the event id of a row of the table as SQL, as builder.eventID has it.
func (t *Table) identity(alias string) string {
	return t.identityOf(t.column0(alias, t.names.eventID, "NULL"), alias+"."+quote(t.names.id))
}

func (t *Table) identityOf(event, id string) string {
	id += "::text"
	if t.IDColumn.Type != "uuid" {
		id = stringLiteral(t.Name+":") + " || " + id
	}
	return fmt.Sprintf("coalesce(nullif(%s::text, ''), %s)", event, id)
}

// recordedAt is, as SQL, since when the ledger has an event: NULL if it has not.
func (t *Table) recordedAt(identity string) string {
	if t.Ledger == nil {
		return "NULL::timestamptz"
	}
	return fmt.Sprintf("(SELECT l.processed_at::timestamptz FROM %s l WHERE l.event_id = (%s)::%s)", t.Ledger.Name, identity, t.Ledger.eventType)
}

// recording is the part of a stamp that writes the events of a source of rows into the ledger; nothing without one.
// source has the column event.
func (t *Table) recording(source string) string {
	if t.Ledger == nil {
		return ""
	}
	return fmt.Sprintf(`,
recorded AS (
	INSERT INTO %s (event_id, processed_at) SELECT r.event::%s, now() FROM %s
	    ON CONFLICT (event_id) DO NOTHING)`, t.Ledger.Name, t.Ledger.eventType, source)
}

// event is the event id as the column `event` of a row that is about to be stamped, where the ledger wants it.
func (t *Table) event() string {
	if t.Ledger == nil {
		return ""
	}
	return ", " + t.identity("o") + " AS event"
}

// RecordedError says that rows which a command selected are in the ledger, so that the relay would stamp them
// without sending.
type RecordedError struct {
	Table, Ledger string
	Rows          int
}

// Error implements error.
func (e *RecordedError) Error() string {
	return fmt.Sprintf("outbox %s: the events of %d of these rows are in the ledger %s, so they would be stamped and not sent; "+
		"nothing was changed; to send them again all the same, add --force, which deletes their entries", e.Table, e.Rows, e.Ledger)
}

// checkRecorded refuses a selection of settled rows whose events are in the ledger.
func (t *Table) checkRecorded(ctx context.Context, conn *pgx.Conn, where string, args []any) error {
	if t.Ledger == nil {
		return nil
	}
	n, err := t.countSettled(ctx, conn, where+" AND "+t.recordedAt(t.identity("o"))+" IS NOT NULL", args)
	if err != nil || n == 0 {
		return err
	}
	return &RecordedError{Table: t.Name, Ledger: t.Ledger.Name, Rows: n}
}

// striking is the part of a republish that deletes the ledger's entries of the rows that it sends again.
func (t *Table) striking() string {
	if t.Ledger == nil {
		return ""
	}
	return fmt.Sprintf(`
struck AS (DELETE FROM %s l USING hit h WHERE l.event_id = h.event::%s),`, t.Ledger.Name, t.Ledger.eventType)
}

// Retire is a statement that deletes up to LedgerPage entries which are older than so many seconds ($1).
func (l *Ledger) Retire() string {
	return fmt.Sprintf(`
DELETE FROM %[1]s WHERE event_id IN (
	SELECT event_id FROM %[1]s WHERE processed_at < now() - $1::float8 * interval '1 second' ORDER BY processed_at LIMIT %[2]d)`, l.Name, LedgerPage)
}

// LedgerPage is how many entries of a ledger one statement deletes.
const LedgerPage = 1000
