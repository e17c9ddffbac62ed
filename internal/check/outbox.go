package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// outboxFacts is an outbox that could be opened.
type outboxFacts struct {
	Name   string
	Lacks  []string // privileges that are missing, as GRANT takes them
	Hidden bool     // row security may hide rows
	// LeftAlone are columns for people that pgrelay would write if the role might.
	LeftAlone []string
	// Beside are further tables that the outbox needs.
	Beside []besideFacts
	// Sequence is that of a key that gives ordered routes their order; empty: none.
	Sequence string
	Cache    int64
	Wanted   []relay.Index
	Parts    []part // the table, or its partitions
}

// besideFacts is a table beside an outbox, and what the role may not do to it.
type besideFacts struct {
	What, Name string
	Lacks      []string
}

func (d *doctor) checkOutbox(ctx context.Context, cfg config.Outbox) error {
	name := "outbox " + cfg.Table
	table, err := config.ParseTable(cfg.Table)
	if err != nil {
		return err
	}
	if table.Schema == "pgrelay" && d.schema.Level == Failure {
		d.add(skipped(name, "cannot be looked at before the schema pgrelay is in order"))
		return nil
	}
	var sinks []relay.Sink
	for _, dest := range d.in.Destinations {
		sinks = append(sinks, dest.Sink)
	}
	t, err := relay.OpenTable(ctx, d.conn, cfg, sinks)
	if err != nil {
		lines, err := judgeOpen(name, err)
		d.add(lines...)
		return err
	}
	d.tables = append(d.tables, t)
	f, err := readOutbox(ctx, d.conn, t)
	if err != nil {
		return err
	}
	d.add(judgeOutbox("outbox "+t.Name, f, d.server.Role)...)
	if slices.Contains(f.Lacks, "SELECT") {
		return nil
	}
	statuses, err := t.Statuses(ctx, d.conn)
	if err != nil {
		return err
	}
	d.add(judgeStatuses("outbox "+t.Name, statuses)...)
	objections, err := t.Objections(ctx, d.conn)
	if err != nil {
		return err
	}
	for _, o := range objections {
		d.add(judgeObjection("outbox "+t.Name, o))
	}
	return nil
}

// checkLook looks as the poller does at a table whose rows may not be ready. It takes as long as a look.
func (d *doctor) checkLook(ctx context.Context, t *relay.Table) error {
	scans, err := t.LookPlan(ctx, d.conn)
	if err != nil {
		return err
	}
	counts, err := t.Count(ctx, d.conn)
	if err != nil {
		return err
	}
	d.add(judgeLook("outbox "+t.Name, scans, counts))
	return nil
}

// notReadyMany is from how many rows on that aren't ready a look costs a part of a core that somebody notices.
const notReadyMany = 10_000

// judgeLook shows what each look at rows that may not be ready goes by.
func judgeLook(name string, scans []string, c relay.Counts) Line {
	goesBy := "; a look goes by: " + strings.Join(scans, ", ")
	if c.NotReady > notReadyMany {
		return warning(name, "index what ready asks of the joined table, so that a look begins there, or delete rows that will never be ready",
			"%d rows are not ready (the join finds nothing for %d), and each look reads them%s", c.NotReady, c.Unjoined, goesBy)
	}
	return ok(name, "%d rows are not ready (the join finds nothing for %d)%s", c.NotReady, c.Unjoined, goesBy)
}

// judgeOpen makes a line of each thing that is wrong with the table or its configuration. Any other error comes back.
func judgeOpen(name string, err error) ([]Line, error) {
	if joined, many := err.(interface{ Unwrap() []error }); many {
		var lines []Line
		for _, part := range joined.Unwrap() {
			more, err := judgeOpen(name, part)
			if err != nil {
				return nil, err
			}
			lines = append(lines, more...)
		}
		return lines, nil
	}
	var table *relay.TableError
	if !errors.As(err, &table) {
		return nil, err
	}
	fix := table.Hint
	if fix == "" {
		fix = "correct it in the configuration"
	}
	return []Line{failure(name, fix, "%s", table.Detail)}, nil
}

const outboxSQL = `SELECT array_cat(
		ARRAY(SELECT p FROM unnest($4::text[]) p WHERE NOT has_table_privilege(c.oid, p)),
		ARRAY(SELECT format('UPDATE (%I)', m) FROM unnest($2::text[]) m WHERE NOT has_column_privilege(c.oid, m, 'UPDATE'))),
	` + hiddenSQL + `, coalesce(q.name, ''), coalesce(q.cache, 0)
  FROM pg_catalog.pg_class c
  LEFT JOIN LATERAL ( -- a sequence belongs to its identity column, and is named by the default of any other
	SELECT format('%I.%I', n.nspname, s.relname) AS name, z.seqcache AS cache
	  FROM pg_catalog.pg_attribute a
	  LEFT JOIN pg_catalog.pg_attrdef v ON v.adrelid = a.attrelid AND v.adnum = a.attnum
	  JOIN pg_catalog.pg_depend x ON x.classid = 'pg_class'::regclass AND x.refclassid = 'pg_class'::regclass AND x.refobjid = a.attrelid
			AND x.refobjsubid = a.attnum AND x.deptype = 'i'
		OR x.classid = 'pg_attrdef'::regclass AND x.objid = v.oid AND x.refclassid = 'pg_class'::regclass
	  JOIN pg_catalog.pg_class s ON s.relkind = 'S' AND s.oid IN (x.objid, x.refobjid)
	  JOIN pg_catalog.pg_sequence z ON z.seqrelid = s.oid
	  JOIN pg_catalog.pg_namespace n ON n.oid = s.relnamespace
	 WHERE a.attrelid = c.oid AND a.attname = $3 LIMIT 1) q ON true
 WHERE c.oid = $1`

func readOutbox(ctx context.Context, conn *pgx.Conn, t *relay.Table) (outboxFacts, error) {
	f := outboxFacts{Name: t.Name, Wanted: t.Indexes(), LeftAlone: t.LeftAlone()}
	rights := []string{"SELECT"}
	if t.Deletes() || t.Retention() > 0 {
		rights = append(rights, "DELETE")
	}
	err := conn.QueryRow(ctx, outboxSQL, t.OID, t.Marks(), t.IDColumn.Name, rights).Scan(&f.Lacks, &f.Hidden, &f.Sequence, &f.Cache)
	if err != nil {
		return f, fmt.Errorf("reading the rights on %s: %w", t.Name, err)
	}
	if !t.OrderedByKey() {
		f.Sequence = ""
	}
	if t.Ledger != nil {
		f.Beside = append(f.Beside, besideFacts{What: "ledger", Name: t.Ledger.Name, Lacks: []string{"SELECT", "INSERT", "DELETE"}})
	}
	if t.Sends != nil {
		f.Beside = append(f.Beside, besideFacts{What: "table of sends", Name: t.Sends.Name, Lacks: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}})
	}
	for i, b := range f.Beside {
		err := conn.QueryRow(ctx, `SELECT ARRAY(SELECT p FROM unnest($2::text[]) p WHERE NOT has_table_privilege($1, p))`, b.Name, b.Lacks).
			Scan(&f.Beside[i].Lacks)
		if err != nil {
			return f, fmt.Errorf("reading the rights on %s: %w", b.Name, err)
		}
	}
	f.Parts, err = readParts(ctx, conn, t)
	return f, err
}

// judgeOutbox names everything that is wrong with a table that could be opened.
func judgeOutbox(name string, f outboxFacts, role string) (lines []Line) {
	if len(f.Lacks) > 0 {
		lines = append(lines, failure(name, fmt.Sprintf("run: GRANT %s ON %s TO %s", strings.Join(f.Lacks, ", "), f.Name, quote(role)),
			"this role lacks rights on it: %s", strings.Join(f.Lacks, ", ")))
	}
	for _, b := range f.Beside {
		if len(b.Lacks) > 0 {
			lines = append(lines, failure(name, fmt.Sprintf("run: GRANT %s ON %s TO %s", strings.Join(b.Lacks, ", "), b.Name, quote(role)),
				"this role lacks rights on its %s %s: %s", b.What, b.Name, strings.Join(b.Lacks, ", ")))
		}
	}
	if f.Hidden {
		lines = append(lines, failure(name, openRows(f.Name, role), "row security hides rows of it from this role"))
	}
	if f.Sequence != "" && f.Cache > 1 {
		lines = append(lines, failure(name, fmt.Sprintf("give order_by, or run: ALTER SEQUENCE %s CACHE 1", f.Sequence),
			"sessions take the numbers of its key in blocks of %d, so they give no order", f.Cache))
	}
	lines = append(lines, judgeIndexes(name, f)...)
	if len(lines) == 0 {
		text := "has its columns and indexes, and this role its rights"
		if len(f.LeftAlone) > 0 {
			text += "; not written, as this role may not: " + strings.Join(f.LeftAlone, ", ")
		}
		lines = append(lines, ok(name, "%s", text))
	}
	return lines
}
