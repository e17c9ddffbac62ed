package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"pgrelay/internal/config"
)

// Conditional says that a pending row may have to wait for what stands in other tables or for its own ready condition. Nothing tells
// when that changes: looks find it.
func (t *Table) Conditional() bool { return t.cfg.Join != "" || t.cfg.Ready != "" }

// beside is a subquery of what stands beside a row: the columns of select and whether the row is ready, once for each row that the join
// finds. The user's SQL is in a scope of its own, in which o is the row, so that its names can't meet the statement's;
// the planner pulls all of it up. Each piece ends with a line, should it end with a comment.
func (t *Table) beside(alias string) string {
	ready := "true"
	if t.cfg.Ready != "" {
		ready = t.cfg.Ready
	}
	items := fmt.Sprintf("(%s\n) AS %s", ready, readyColumn)
	if t.cfg.Select != "" {
		items = t.cfg.Select + "\n, " + items
	}
	return fmt.Sprintf("SELECT %s FROM (SELECT %s.*) AS o %s\n", items, alias, t.cfg.Join)
}

// readyColumn is a name that no select has by chance.
const readyColumn = `"pgrelay ready"`

// joined adds to a FROM list what stands beside the row, as j; a row that has nothing there falls out.
func (t *Table) joined(alias string) string {
	if t.plain() {
		return ""
	}
	return fmt.Sprintf("CROSS JOIN LATERAL (%s) j ", t.beside(alias))
}

func (t *Table) plain() bool { return !t.Conditional() && t.cfg.Select == "" }

// maybeJoined keeps every row, once, with the best that stands beside it and with how many of that are ready.
func (t *Table) maybeJoined(alias string) string {
	if t.plain() {
		return ""
	}
	return fmt.Sprintf(`LEFT JOIN LATERAL (SELECT q.*, true AS "pgrelay joined", count(*) FILTER (WHERE q.%[1]s) OVER () AS "pgrelay found"
		FROM (%[2]s) q ORDER BY q.%[1]s DESC NULLS LAST LIMIT 1) j ON true `, readyColumn, t.beside(alias))
}

// joinWords are what the expander knows of it: whether a row that maybeJoined kept has something beside it, whether it is ready, and its
// route; a further condition for one that is joined; and the kind of one that is neither.
func (t *Table) joinWords() []string {
	isJoined, isReady, route, condition := "true", "true", "rt.route", ""
	if !t.plain() {
		isJoined = `coalesce(j."pgrelay joined", false)`
		isReady = "coalesce(j." + readyColumn + ", false)"
		route = fmt.Sprintf(`CASE WHEN j."pgrelay joined" IS NULL THEN %d WHEN j."pgrelay found" > 1 THEN %d ELSE rt.route END`, routeUnjoined, routeSeveral)
		condition = " AND j." + readyColumn
	}
	return []string{
		"@isjoined", isJoined, "@isready", isReady, "@mayberoute", route, "@ready", condition,
		"@o.maybe", t.maybeJoined("o") + t.routed(t.kindValue("o")), "@o.routed", t.joined("o") + t.routed(t.kindValue("o")),
		"@maybejoined", t.maybeJoined("o"), "@o.readyexists", t.readyExists("o"),
		"@o.kindalone", t.kindAlone("o"), "@o.kind", t.kindValue("o"), "@o.line", t.line("o"), "@p.line", t.line("p"),
		"@o.holds", t.holds("o"),
	}
}

// value is a column of the row, or of what is joined to it.
func (t *Table) value(alias, name string) string {
	if _, ok := t.column(name); ok {
		return alias + "." + quote(name)
	}
	return "j." + quote(name)
}

// kindValue is a row's kind where what is joined to it is j.
func (t *Table) kindValue(alias string) string {
	switch name := t.names.eventType; {
	case t.cfg.Kind.Constant != "":
		return stringLiteral(t.cfg.Kind.Constant) + "::text"
	case name == "":
		return "NULL::text"
	default:
		return t.value(alias, name)
	}
}

// holds is the name of the row's destination if a dead row of its route holds its line, else NULL.
func (t *Table) holds(alias string) string {
	return fmt.Sprintf("(%s)[1 + %s]", t.holdsArray(), routeCase(t.cfg.Routes, t.kindAlone(alias)+"::text"))
}

// readyExists is whether a row is ready where nothing is joined to it.
func (t *Table) readyExists(alias string) string {
	if !t.Conditional() {
		return "true"
	}
	return fmt.Sprintf("EXISTS (SELECT FROM (%s) j WHERE j.%s)", t.beside(alias), readyColumn)
}

// kindAlone is a row's kind where nothing is joined to it.
func (t *Table) kindAlone(alias string) string {
	kind := t.kindValue(alias)
	if !strings.HasPrefix(kind, "j.") {
		return kind
	}
	return fmt.Sprintf("(SELECT %s FROM (%s) j ORDER BY j.%s DESC NULLS LAST LIMIT 1)", kind, t.beside(alias), readyColumn)
}

// line is the index of the destination whose line the row stands in: NULL where its route keeps no order, and for a row that isn't
// ready, which holds nobody up.
func (t *Table) line(alias string) string {
	line := fmt.Sprintf("(%s)[1 + %s]", t.lineArray(), routeCase(t.cfg.Routes, t.kindValue(alias)+"::text"))
	if t.plain() {
		return line
	}
	return fmt.Sprintf("(SELECT %s FROM (%s) j WHERE j.%s LIMIT 1)", line, t.beside(alias), readyColumn)
}

// LookPlan is what a regular look goes by: the scans of its plan under the settings of the relay's sessions.
func (t *Table) LookPlan(ctx context.Context, conn *pgx.Conn) (scans []string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan;
			SET LOCAL max_parallel_workers_per_gather = 0`); err != nil {
			return err
		}
		// Room everywhere: the planner knows the values here, and would leave out a look that has none.
		rows, err := tx.Query(ctx, "EXPLAIN (COSTS OFF) "+t.sql.looks.first, slices.Repeat([]int32{1}, slices.Max(t.sinks)+1))
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, line := range lines {
			scan := strings.TrimLeft(line, " ->")
			if strings.Contains(scan, "Index ") && strings.Contains(scan, "Scan ") && !strings.Contains(scan, " on failures") || strings.HasPrefix(scan, "Seq Scan") {
				scans = append(scans, scan)
			}
		}
		return err
	})
	return scans, t.explain(err)
}

// readJoin asks the server what join, select and ready give, which checks them and the rights on what they name. The problem is
// the first piece's at fault; any other error is the connection's.
func (t *Table) readJoin(ctx context.Context, conn *pgx.Conn) (problem, err error) {
	if t.plain() {
		return nil, nil
	}
	outbox := quote(t.Schema) + "." + quote(t.Relation)
	if _, err = describe(ctx, conn, "SELECT o.* FROM "+outbox+" o WHERE false"); sqlState(err) == "42501" { // no right that join lacks
		return &TableError{t.Name, "this role may not read it", fmt.Sprintf("run: GRANT SELECT, UPDATE (%s) ON %s TO %s",
			t.list("%s", t.Marks()...), t.Name, quote(conn.Config().User))}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", t.Name, err)
	}
	joined := fmt.Sprintf("FROM (SELECT o.* FROM %s o) o %s\n WHERE false", outbox, t.cfg.Join)
	for _, piece := range []struct{ key, text, sql string }{
		{"join", t.cfg.Join, "SELECT " + joined},
		{"select", t.cfg.Select, "SELECT " + t.cfg.Select + "\n " + joined},
		{"ready", t.cfg.Ready, "SELECT " + joined + " AND (" + t.cfg.Ready + "\n)"},
	} {
		if piece.text == "" {
			continue
		}
		fields, err := describe(ctx, conn, piece.sql)
		if pg := objection(conn, err); pg != nil {
			return t.refuseSQL(piece.key, "SELECT", pg, conn.Config().User), nil
		}
		if err != nil {
			return nil, fmt.Errorf("trying %s of %s: %w", piece.key, t.Name, err)
		}
		if piece.key == "select" {
			if problem, err = t.readSelected(ctx, conn, fields); problem != nil || err != nil {
				return problem, err
			}
		}
	}
	return nil, nil
}

func describe(ctx context.Context, conn *pgx.Conn, sql string) ([]pgconn.FieldDescription, error) {
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	rows.Close()
	return slices.Clone(rows.FieldDescriptions()), rows.Err()
}

func (t *Table) refuseSQL(key, right string, pg *pgconn.PgError, role string) error {
	if pg.Code == "42501" {
		return &TableError{t.Name, key + ": " + pg.Message, fmt.Sprintf("run GRANT %s ON … TO %s for what it names", right, quote(role))}
	}
	hint := "correct the SQL; the outbox table is o in it"
	if pg.Hint != "" {
		hint = "PostgreSQL says: " + pg.Hint
	}
	return &TableError{t.Name, key + ": PostgreSQL refuses it: " + pg.Message, hint}
}

// readSelected takes the columns of select, whose names templates see beside the row's own.
func (t *Table) readSelected(ctx context.Context, conn *pgx.Conn, fields []pgconn.FieldDescription) (problem, err error) {
	oids := make([]uint32, len(fields))
	for i, f := range fields {
		oids[i] = f.DataTypeOID
		switch _, taken := t.column(f.Name); {
		case f.Name == "?column?":
			return &TableError{t.Name, fmt.Sprintf("select: its column %d has no name", i+1), "give it one with AS"}, nil
		case taken || slices.ContainsFunc(t.selected, func(c Column) bool { return c.Name == f.Name }):
			return &TableError{t.Name, fmt.Sprintf("select: there are two columns %q, its own and the table's or one before", f.Name),
				"give it another name with AS, or leave it out: the table's columns are there anyway"}, nil
		}
		t.selected = append(t.selected, Column{Name: f.Name})
	}
	rows, err := conn.Query(ctx, `SELECT pg_catalog.format_type(u.oid, -1) FROM unnest($1::oid[]) WITH ORDINALITY u(oid, nth) ORDER BY u.nth`, oids)
	if err != nil {
		return nil, fmt.Errorf("reading the columns of select of %s: %w", t.Name, err)
	}
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("reading the columns of select of %s: %w", t.Name, err)
	}
	for i, typ := range types {
		t.selected[i].Type = typ
	}
	return nil, nil
}

// mapKind decides where a row's kind comes from.
func (t *Table) mapKind(kind config.RowKind) error {
	switch {
	case kind.Constant != "":
		t.names.eventType = ""
	case kind.Column != "":
		if !slices.ContainsFunc(t.fields(), func(c Column) bool { return c.Name == kind.Column }) {
			return &TableError{t.Name, fmt.Sprintf("kind: there is no column %q", kind.Column), "the columns of the row and of select are " + columnList(t.fields())}
		}
		t.names.eventType = kind.Column
	}
	return nil
}

// fields are the columns of the row and of select.
func (t *Table) fields() []Column { return append(slices.Clone(t.Columns), t.selected...) }
