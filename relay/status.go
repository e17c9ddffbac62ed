package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// mapStatus finds the column that says how far a row is, and what tells since when somebody else has had one.
func (t *Table) mapStatus() (problems []error) {
	s := t.cfg.Status
	if s.Column == "" {
		t.names.updatedAt = ""
		return nil
	}
	if _, ok := t.column(s.Column); !ok {
		return []error{&TableError{t.Name, fmt.Sprintf("status.column: there is no column %q", s.Column), "its columns are " + columnList(t.Columns)}}
	}
	t.names.status = s.Column
	if t.names.claimedAt == "" && t.names.updatedAt == "" {
		problems = append(problems, &TableError{t.Name,
			"status: no column claimed_at or updated_at tells since when a row has been " + s.Processing + ", so one that a dead worker left so could not be taken back",
			fmt.Sprintf("map one with columns: {claimed_at: …}, or run: ALTER TABLE %s ADD COLUMN claimed_at timestamptz", t.Name)})
	}
	return problems
}

// statusValue is a value of the status by its key in the configuration.
type statusValue struct{ key, value string }

func (t *Table) statusValues() []statusValue {
	s := t.cfg.Status
	return []statusValue{{"pending", s.Pending}, {"processing", s.Processing}, {"published", s.Published}, {"dead", s.Dead}}
}

// tryStatus has the server read each value as the column's type, and as what its CHECK constraints allow. The problems are the
// values that the column can't have; any other error is the connection's.
func (t *Table) tryStatus(ctx context.Context, conn *pgx.Conn) (problems []error, err error) {
	if !t.hasStatus() {
		return nil, nil
	}
	checks, err := t.checks(ctx, conn, t.names.status)
	if err != nil {
		return nil, err
	}
	seen := map[string]string{}
	for _, v := range t.statusValues() {
		text, problem, err := t.tryValue(ctx, conn, v, checks)
		if err != nil {
			return nil, err
		}
		if first := seen[text]; problem == nil && first != "" {
			problem = t.refuseValue(v, "is the same value to the column as that of status."+first, "give each its own")
		}
		if problem != nil {
			problems = append(problems, problem)
			continue
		}
		seen[text] = v.key
	}
	return problems, nil
}

// tryValue gives the value as the column stores it.
func (t *Table) tryValue(ctx context.Context, conn *pgx.Conn, v statusValue, checks []tableCheck) (text string, problem, err error) {
	c, _ := t.column(t.names.status)
	literal := stringLiteral(v.value)
	cast := fmt.Sprintf("CAST(%s AS %s)", literal, c.Declared)
	var whole bool
	err = conn.QueryRow(ctx, fmt.Sprintf("SELECT (%s)::text, (%[1]s = %s)", cast, literal)).Scan(&text, &whole)
	if pg := new(pgconn.PgError); errors.As(err, &pg) && RowFault(err) { // for what it is, not for the server's state
		return "", t.refuseValue(v, "PostgreSQL refuses it: "+pg.Message, widen(c, v.value)), nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("trying status.%s of %s: %w", v.key, t.Name, err)
	}
	if !whole {
		return "", t.refuseValue(v, fmt.Sprintf("is cut to %q by the column, which is %s", text, c.Declared),
			fmt.Sprintf("give the value that it has, or run: ALTER TABLE %s ALTER COLUMN %s TYPE text", t.Name, quote(c.Name))), nil
	}
	for _, check := range checks {
		var allowed bool
		sql := fmt.Sprintf("SELECT (%s) IS NOT FALSE FROM (SELECT %s AS %s) o", check.Expr, cast, quote(c.Name))
		if err := conn.QueryRow(ctx, sql).Scan(&allowed); err != nil {
			return "", nil, fmt.Errorf("trying constraint %s of %s: %w", check.Name, t.Name, err)
		}
		if !allowed {
			return "", t.refuseValue(v, fmt.Sprintf("its constraint %q does not allow it", check.Name),
				fmt.Sprintf("give the value that it allows, or run: ALTER TABLE %s DROP CONSTRAINT %s, ADD CONSTRAINT %[2]s CHECK ((%s) OR %s = %s)",
					t.Name, quote(check.Name), check.Expr, quote(c.Name), literal)), nil
		}
	}
	return text, nil, nil
}

// widen says how the column's type comes to have a value.
func widen(c Column, value string) string {
	if !c.Enum {
		return fmt.Sprintf("give one that the column, which is %s, has", c.Declared)
	}
	return fmt.Sprintf("give the value that it has for this, or run: ALTER TYPE %s ADD VALUE %s", c.Type, stringLiteral(value))
}

func (t *Table) refuseValue(v statusValue, what, hint string) error {
	return &TableError{t.Name, fmt.Sprintf("status.%s: %q: %s", v.key, v.value, what), hint}
}

// foreign says that a status is none that the relay knows.
func (t *Table) foreign(status *string) bool {
	if !t.hasStatus() {
		return false
	}
	return status == nil || !slices.ContainsFunc(t.statusValues(), func(v statusValue) bool { return v.value == strings.TrimRight(*status, " ") })
}

// StatusCount is how many rows have a status.
type StatusCount struct {
	Status string // NULL as that
	Rows   int
	Known  bool
}

// newestRows is how many rows Statuses looks at: some tens of milliseconds.
const newestRows = 10_000

// Statuses counts the newest rows by their status, the most frequent first; nothing where the table has none. Newest is what the key says.
func (t *Table) Statuses(ctx context.Context, conn *pgx.Conn) ([]StatusCount, error) {
	if !t.hasStatus() {
		return nil, nil
	}
	s, status := t.cfg.Status, quote(t.names.status)
	rows, err := conn.Query(ctx, fmt.Sprintf(`
		SELECT coalesce(q.%[1]s::text, 'NULL'), count(*), coalesce(%[2]s, false)
		  FROM (SELECT o.%[1]s FROM %[3]s o ORDER BY o.%[4]s DESC LIMIT %[5]d) q GROUP BY q.%[1]s ORDER BY 2 DESC, 1`,
		status, t.statusIs("q", s.Pending, s.Processing, s.Published, s.Dead), t.relation(), quote(t.names.id), newestRows))
	if err != nil {
		return nil, t.explain(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[StatusCount])
	return all, t.explain(err)
}

// since is, as SQL, since when somebody has been processing a row; NULL if nobody has said.
func (t *Table) since(alias string) string {
	switch claimed, updated := t.column0(alias, t.names.claimedAt, ""), t.column0(alias, t.names.updatedAt, ""); {
	case !t.hasStatus():
		return "NULL::timestamptz"
	case claimed != "" && updated != "":
		return "coalesce(" + claimed + ", " + updated + ")"
	default:
		return claimed + updated
	}
}

// TakeBack is a statement that sets up to LookSize rows back to pending which somebody else has been processing for more than so many
// seconds ($1); empty where the table has no status. Such a row is in no claim of a relay's; one of which nobody says since when is left
// alone. The condition is checked again under the lock, and what a claim takes meanwhile has its time from it.
func (t *Table) TakeBack() string { return t.sql.takeBack }

func takeBackSQL(t *Table) string {
	return fmt.Sprintf(`
WITH stale AS MATERIALIZED (
	SELECT @o.id AS k FROM @outbox o
	 WHERE @o.processing AND %s < now() - $1::float8 * interval '1 second'
	   AND @o.id::text NOT IN (SELECT u.id FROM pgrelay.claims c CROSS JOIN LATERAL unnest(c.ids) AS u(id) WHERE c.outbox = @name)
	 LIMIT %d FOR NO KEY UPDATE OF o SKIP LOCKED)
UPDATE @outbox o SET @back FROM stale s WHERE @o.id = s.k`, escape(t.since("o")), LookSize)
}
