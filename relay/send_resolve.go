package relay

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Decision is what a person found out about the sends of an event whose outcome was unknown.
type Decision struct {
	EventID   string
	Recipient string // empty: all
	Sent      bool   // they arrived; else they did not, and are sent again
}

// Resolved is what a decision changed.
type Resolved struct {
	Sends     int `json:"sends"`     // claims that were marked as sent, or deleted
	Published int `json:"published"` // rows that are settled by it
	Again     int `json:"again"`     // rows that go again
	Left      int `json:"left"`      // sends of the event that are still uncertain
}

// InFlightError says that a row is with a running relay, which is about to give it its outcome.
type InFlightError struct{ Table, ID string }

// Error implements error.
func (e *InFlightError) Error() string {
	return fmt.Sprintf("row %s of outbox %s is in flight and about to get its outcome; nothing was changed; try again in a moment", e.ID, e.Table)
}

// ResolveSends carries out a decision in one transaction. An event of which nothing is uncertain is a *NotFoundError, one that is in flight an
// *InFlightError. The rows are locked first, so that no relay claims them meanwhile.
func ResolveSends(ctx context.Context, conn *pgx.Conn, tables []*Table, d Decision) (out Resolved, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var found bool
		for _, group := range bySends(tables) {
			rows, err := lockEvent(ctx, tx, group, d.EventID)
			if err != nil {
				return err
			}
			there, err := group[0].decide(ctx, tx, d, rows, &out)
			if err != nil {
				return err
			}
			found = found || there
		}
		if !found {
			what := "event " + d.EventID
			if d.Recipient != "" {
				what += " to " + d.Recipient
			}
			return &NotFoundError{"no send of " + what + " is uncertain; `pgrelay sends list --uncertain` has those that are"}
		}
		return nil
	})
	return out, err
}

// lockEvent locks the rows of an event and refuses one that is in flight: a claim that was made before the lock is seen by now.
func lockEvent(ctx context.Context, tx pgx.Tx, group []*Table, event string) (all []eventRow, err error) {
	for _, t := range group {
		sql := expander(t).Replace(`SELECT FROM @outbox o WHERE ` + escape(t.ofEvent("o", "$1::text")) + ` FOR NO KEY UPDATE OF o`)
		if _, err := tx.Exec(ctx, sql, event); err != nil {
			return nil, t.explain(err)
		}
		rows, err := t.rowsOf(ctx, tx, []string{event})
		if err != nil {
			return nil, err
		}
		for _, r := range rows[event] {
			if r.flying {
				return nil, &InFlightError{t.Name, r.id}
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// decide carries out a decision in one table of sends. It says whether there was anything to decide.
func (t *Table) decide(ctx context.Context, tx pgx.Tx, d Decision, rows []eventRow, out *Resolved) (found bool, err error) {
	s := t.Sends
	of := fmt.Sprintf("s.%s = $1::text::%s", quote(s.eventID), s.eventIDType)
	unsent := fmt.Sprintf("%s AND s.%s IS NULL", of, quote(s.sentAt))
	named := fmt.Sprintf("%s AND ($2::text = '' OR s.%s = $2::text::%s)", unsent, quote(s.recipient), s.recipientType)
	change := fmt.Sprintf("DELETE FROM %s s WHERE %s", s.Name, named)
	if d.Sent {
		change = fmt.Sprintf("UPDATE %s s SET %s = now() WHERE %s", s.Name, quote(s.sentAt), named)
	}
	done, err := tx.Exec(ctx, change, d.EventID, d.Recipient)
	if err != nil {
		return false, t.explain(err)
	}
	n := int(done.RowsAffected())
	var left, sent int
	err = tx.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FILTER (WHERE s.%[1]s IS NULL), count(s.%[1]s) FROM %[2]s s WHERE %[3]s`,
		quote(s.sentAt), s.Name, of), d.EventID).
		Scan(&left, &sent)
	if err != nil {
		return false, t.explain(err)
	}
	uncertain := slices.ContainsFunc(rows, func(r eventRow) bool { return r.uncertain && !r.pending })
	if n == 0 && (!uncertain || d.Recipient != "") {
		return false, nil
	}
	out.Sends += n
	out.Left += left
	if d.Sent {
		return true, settleRows(ctx, tx, rows, left, out)
	}
	if n == 0 && sent > 0 {
		return true, &NotFoundError{"every send of event " + d.EventID + " has its sent_at, so there is none to try again; say --sent"}
	}
	return true, retryRows(ctx, tx, d.EventID, rows, out)
}

// resolvedSQL settles a row ($1) that was uncertain as if it had been delivered, and has the relay look for what it held.
const resolvedSQL = `
WITH hit AS MATERIALIZED (SELECT @o.id AS k, @o.id::text AS id@event FROM @outbox o WHERE @o.id = $1::text::@keytype AND @o.settled),
marked AS (%s hit h WHERE @o.id = h.k)%s,
healed AS (DELETE FROM pgrelay.failures f USING hit h WHERE f.outbox = @name AND f.row_id = h.id),
woken AS (SELECT pg_notify('` + NotifyChannel + `', @name) WHERE EXISTS (SELECT FROM hit))
SELECT (SELECT count(*) FROM hit), (SELECT count(*) FROM woken)`

// settleRows settles the rows of an event of which nothing is uncertain any more.
func settleRows(ctx context.Context, tx pgx.Tx, rows []eventRow, left int, out *Resolved) error {
	for _, r := range rows {
		if left > 0 || r.pending || !r.uncertain {
			continue
		}
		var n, woken int
		if err := tx.QueryRow(ctx, r.table.resolved(), r.id).Scan(&n, &woken); err != nil {
			return r.table.explain(err)
		}
		out.Published += n
	}
	return nil
}

// resolved is resolvedSQL of the table.
func (t *Table) resolved() string {
	settle := t.mark(t.relation())
	if t.names.deadAt != "" && !t.Deletes() {
		settle = fmt.Sprintf("UPDATE %s o SET %s, %s = NULL FROM", t.relation(), t.delivering(), quote(t.names.deadAt))
	}
	return expander(t).Replace(fmt.Sprintf(resolvedSQL, escape(settle), escape(t.recording("hit r"))))
}

// retryRows makes the rows of an event pending again: those that are dead or uncertain, else those that were published.
func retryRows(ctx context.Context, tx pgx.Tx, event string, rows []eventRow, out *Resolved) error {
	if len(rows) == 0 {
		return &NotFoundError{"the row of event " + event + " is gone, so it can't be sent again; nothing was changed"}
	}
	dead := slices.ContainsFunc(rows, func(r eventRow) bool { return r.dead && !r.pending })
	for _, r := range rows {
		if r.pending || dead && !r.dead {
			continue
		}
		where, args, err := r.table.where(Selection{IDs: []string{r.id}})
		if err != nil {
			return err
		}
		change := Change{}
		if err := r.table.again(ctx, tx.Conn(), where, args, Selection{}, &change); err != nil {
			return err
		}
		out.Again += change.Rows
	}
	return nil
}
