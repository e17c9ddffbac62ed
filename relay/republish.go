package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Selection says which rows of an outbox a command is about. Its conditions are ANDed.
type Selection struct {
	IDs          []string // keys as text
	Where        []Equal
	Since, Until time.Time // of published_at; zero is open
	// Force deletes the ledger's entries of the rows, which are refused without it, and the claims of sends that were made, whose
	// recipients get nothing without it.
	Force bool
	// Progress, if set, hears after each transaction but the last how many rows are done.
	Progress func(rows int)
}

// Equal asks for rows whose column has a value, written as PostgreSQL reads it.
type Equal struct{ Column, Value string }

// Change is what a command did to the rows that it selected.
type Change struct {
	Rows int `json:"rows"`
	// Pending are ids that were asked for and are pending anyway.
	Pending []string `json:"pending,omitempty"`
	// Kept are sends of the rows that are not made again, because they are claimed: all without force, with it those without sent_at.
	Kept int `json:"kept,omitempty"`
}

// NotFoundError says that what a command was given isn't there.
type NotFoundError struct{ What string }

// Error implements error.
func (e *NotFoundError) Error() string { return e.What }

// changeBatch is how many rows one transaction of a command touches, so that it holds no lock for long.
const changeBatch = 1000

// republishSQL: $1 the key behind which to go on (NULL: from the beginning); the selection's arguments follow. The failures row
// carries the new generation and is due at once, which is also what makes the poller find the row.
const republishSQL = `
WITH hit AS MATERIALIZED (
	SELECT @o.id AS k, @o.event_id AS event_id, @o.kindalone AS kind, @subject AS event FROM @outbox o
	 WHERE @o.settled AND %s AND %s ORDER BY @o.id LIMIT %d FOR NO KEY UPDATE OF o),@struck%s
fresh AS (
	INSERT INTO pgrelay.failures AS f (outbox, row_id, event_id, kind, generation, next_attempt_at)
	SELECT @name, h.k::text, coalesce(h.event_id::text, ''), coalesce(h.kind::text, ''), nextval('pgrelay.generations'), now() FROM hit h
	    ON CONFLICT (outbox, row_id) DO UPDATE SET generation = excluded.generation, attempts = 0, unknowns = 0, crashes = 0,
	       next_attempt_at = now(), dead_at = NULL, uncertain = false, claim = NULL, reason = '', detail = '', since = clock_timestamp()),
back AS (UPDATE @outbox o SET @unmarked FROM hit h WHERE @o.id = h.k),
woken AS (SELECT pg_notify('` + NotifyChannel + `', @name) WHERE EXISTS (SELECT FROM hit))
SELECT (SELECT count(*) FROM hit), (SELECT h.k::text FROM hit h ORDER BY h.k DESC LIMIT 1), (SELECT count(*) FROM woken)`

// Republish sends settled rows again, each with a new generation, in transactions of a thousand rows, and wakes a running relay. With
// dry it counts only. A column, value or id that isn't there is a *NotFoundError. Rows that the ledger would keep from being sent are a
// *RecordedError, unless s.Force has their entries deleted.
func (t *Table) Republish(ctx context.Context, conn *pgx.Conn, s Selection, dry bool) (Change, error) {
	where, args, err := t.where(s)
	if err != nil {
		return Change{}, err
	}
	change := Change{}
	if change.Pending, err = t.checkIDs(ctx, conn, s.IDs); err != nil {
		return Change{}, err
	}
	if !s.Force {
		if err := t.checkRecorded(ctx, conn, where, args); err != nil {
			return change, err
		}
	}
	if change.Kept, err = t.countKept(ctx, conn, where, args, s.Force); err != nil {
		return change, err
	}
	if dry {
		change.Rows, err = t.countSettled(ctx, conn, where, args)
		return change, err
	}
	err = t.again(ctx, conn, where, args, s, &change)
	return change, err
}

// again sends the settled rows for which a condition holds, whose arguments are from $2 on.
func (t *Table) again(ctx context.Context, conn *pgx.Conn, where string, args []any, s Selection, change *Change) error {
	unclaim := ""
	if s.Force && t.Sends != nil {
		unclaim = escape(t.Sends.unclaiming())
	}
	x := expander(t)
	var last *string
	for {
		behind := "$1::text IS NULL"
		if last != nil {
			behind = "@o.id > $1::text::@keytype"
		}
		sql := x.Replace(fmt.Sprintf(republishSQL, behind, escape(where), changeBatch, unclaim))
		var n, woken int
		if err := conn.QueryRow(ctx, sql, append([]any{last}, args...)...).Scan(&n, &last, &woken); err != nil {
			return t.explain(err)
		}
		change.Rows += n
		if n < changeBatch {
			return nil
		}
		if s.Progress != nil {
			s.Progress(change.Rows)
		}
	}
}

// countSettled counts the settled rows for which a condition holds, whose arguments are from $2 on.
func (t *Table) countSettled(ctx context.Context, conn *pgx.Conn, where string, args []any) (n int, err error) {
	return t.countJoined(ctx, conn, "", where, args)
}

// countJoined is the same with a join of o.
func (t *Table) countJoined(ctx context.Context, conn *pgx.Conn, join, where string, args []any) (n int, err error) {
	sql := expander(t).Replace(`SELECT count(*) FROM @outbox o `+escape(join)+` WHERE @o.settled AND $1::text IS NULL AND `) + where
	err = conn.QueryRow(ctx, sql, append([]any{nil}, args...)...).Scan(&n)
	return n, t.explain(err)
}

// where turns a selection into a condition on o with arguments from $2 on.
func (t *Table) where(s Selection) (string, []any, error) {
	conditions := []string{"true"}
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args)+1)
	}
	if len(s.IDs) > 0 {
		conditions = append(conditions, fmt.Sprintf("o.%s = ANY (%s::text[]::%s[])", quote(t.names.id), arg(s.IDs), t.IDColumn.Type))
	}
	for _, e := range s.Where {
		c, ok := t.column(e.Column)
		if !ok {
			return "", nil, &NotFoundError{fmt.Sprintf("outbox %s has no column %q; its columns are %s", t.Name, e.Column, columnList(t.Columns))}
		}
		conditions = append(conditions, fmt.Sprintf("o.%s = %s::text::%s", quote(c.Name), arg(e.Value), c.Type))
	}
	published := "o." + quote(t.names.publishedAt)
	if t.names.publishedAt == "" && !(s.Since.IsZero() && s.Until.IsZero()) {
		return "", nil, &NotFoundError{fmt.Sprintf("outbox %s has no published_at, so nothing tells when its rows were published; select them otherwise", t.Name)}
	}
	if !s.Since.IsZero() {
		conditions = append(conditions, published+" >= "+arg(s.Since)+"::timestamptz")
	}
	if !s.Until.IsZero() {
		conditions = append(conditions, published+" <= "+arg(s.Until)+"::timestamptz")
	}
	return strings.Join(conditions, " AND "), args, nil
}

// checkIDs makes sure that ids are there, and returns those that are pending.
func (t *Table) checkIDs(ctx context.Context, conn *pgx.Conn, ids []string) (pending []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	sql := expander(t).Replace(`
		SELECT u.id, @o.id IS NOT NULL, coalesce(@o.unsettled, false), coalesce(@o.settled, false) FROM unnest($1::text[]) AS u(id)
		  LEFT JOIN @outbox o ON @o.id = u.id::@keytype`)
	rows, err := conn.Query(ctx, sql, ids)
	if err != nil {
		return nil, t.explain(err)
	}
	var missing, foreign []string
	var id string
	var there, waits, settled bool
	_, err = pgx.ForEachRow(rows, []any{&id, &there, &waits, &settled}, func() error {
		switch {
		case !there:
			missing = append(missing, id)
		case waits:
			pending = append(pending, id)
		case !settled:
			foreign = append(foreign, id)
		}
		return nil
	})
	if err != nil {
		return nil, t.explain(err)
	}
	if len(missing) > 0 {
		return nil, &NotFoundError{fmt.Sprintf("outbox %s has no row with id %s", t.Name, strings.Join(missing, ", "))}
	}
	if len(foreign) > 0 {
		return nil, &NotFoundError{fmt.Sprintf("outbox %s has a status for id %s that the relay doesn't know, and leaves such rows alone",
			t.Name, strings.Join(foreign, ", "))}
	}
	return pending, nil
}

// explain turns the server's refusal of a value (class 22) into what was asked for and isn't there.
func (t *Table) explain(err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code[:2] == "22" {
		what := "a value does not fit its column"
		if !t.plain() {
			what += ", or its join, select or ready fails for a row"
		}
		return &NotFoundError{fmt.Sprintf("outbox %s: %s: %s", t.Name, what, pg.Message)}
	}
	return fmt.Errorf("outbox %s: %w", t.Name, err)
}
