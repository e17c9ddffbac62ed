package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// tableCheck is a CHECK of the table's.
type tableCheck struct{ Name, Expr string }

// checks are the table's constraints, or those on one column alone.
func (t *Table) checks(ctx context.Context, conn *pgx.Conn, column string) ([]tableCheck, error) {
	rows, err := conn.Query(ctx, `
		SELECT c.conname::text, pg_catalog.pg_get_expr(c.conbin, c.conrelid) FROM pg_catalog.pg_constraint c
		  LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attname = $2
		 WHERE c.conrelid = $1 AND c.contype = 'c' AND ($2 = '' OR c.conkey = ARRAY[a.attnum]) ORDER BY 1`, t.OID, column)
	if err != nil {
		return nil, fmt.Errorf("reading the constraints of %s: %w", t.Name, err)
	}
	checks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tableCheck])
	if err != nil {
		return nil, fmt.Errorf("reading the constraints of %s: %w", t.Name, err)
	}
	return checks, nil
}

// Objection is a constraint of the table's that would refuse what the relay writes to rows which are pending.
type Objection struct {
	Constraint string
	What       string // the relay would write
	Rows, Of   int    // so many of so many that were tried
}

// objectionRows is how many pending rows are tried: what a constraint has against one it mostly has against all.
const objectionRows = 100

// Objections tries what the relay will write on the newest pending rows, without writing it: a CHECK of several columns may ask for one that
// nobody maps, and a stamp that it refuses comes after the send.
func (t *Table) Objections(ctx context.Context, conn *pgx.Conn) (all []Objection, err error) {
	checks, err := t.checks(ctx, conn, "")
	if err != nil {
		return nil, err
	}
	for _, check := range checks {
		for _, write := range t.writes() {
			o := Objection{Constraint: check.Name, What: write.what}
			err := conn.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FILTER (WHERE (%s) IS FALSE), count(*) FROM (%s) o", check.Expr, t.asWritten(write.columns))).
				Scan(&o.Rows, &o.Of)
			if err != nil {
				return nil, t.explain(err)
			}
			if o.Rows > 0 {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// write is what a claim or stamp sets of a row.
type write struct {
	what    string
	columns assignments
}

func (t *Table) writes() []write {
	all := []write{{"the claim", t.claimed()}, {"the mark of death", t.buried(failure{"1", "interval '0'", "'reason'", "'detail'"})}}
	if !t.Deletes() {
		all = append(all, write{"the mark of delivery", t.delivered()})
	}
	return slices.DeleteFunc(all, func(w write) bool { return len(w.columns) == 0 })
}

// asWritten are the newest pending rows as they would be.
func (t *Table) asWritten(columns assignments) string {
	items := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		items[i] = "o." + quote(c.Name)
		if at := slices.IndexFunc(columns, func(a assignment) bool { return a.column == c.Name }); at >= 0 {
			items[i] = fmt.Sprintf("CAST(%s AS %s) AS %s", columns[at].value, c.Declared, quote(c.Name))
		}
	}
	return fmt.Sprintf("SELECT %s FROM %s o WHERE %s ORDER BY o.%s DESC LIMIT %d",
		strings.Join(items, ", "), t.relation(), t.pending("o"), quote(t.names.id), objectionRows)
}
