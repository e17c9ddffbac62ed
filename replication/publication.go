package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// columnListVersion is the first server that can publish the id column alone.
const columnListVersion = 15

// publication is what the catalog says about the publication and the tables in it.
type publication struct {
	exists                      bool
	owned, allTables            bool
	inserts, changes, truncates bool // changes: updates or deletes
	viaRoot                     bool
	major                       int // the server's major version
	tables                      []publishedTable
}

// publishedTable is one wanted table.
type publishedTable struct {
	*Table
	missing     bool
	partitioned bool
	unlogged    bool // or temporary: cannot be published
	noID        bool
	listed      bool // named in the publication, in whatever way
	carried     bool // under this very name, with its id and without a row filter
}

// publishable is false for a table that no statement could add; the others go on without it.
func (t *publishedTable) publishable() bool { return !t.missing && !t.unlogged && !t.noID }

// publicationPlan is what to do about a publication: run the statements, or if it is
// refused, tell a person to. Without statements it is used as it is.
type publicationPlan struct {
	statements []string
	refused    string
}

// plan decides about the publication. One that carries every insert is used as it is,
// whoever made it.
func (p *publication) plan(name string) publicationPlan {
	if !p.exists {
		return publicationPlan{statements: []string{p.create(name)}}
	}
	plan := publicationPlan{statements: p.alter(name)}
	switch {
	case len(plan.statements) == 0:
		return publicationPlan{}
	case !p.owned:
		plan.refused = "is not ours to alter"
	case p.changes:
		// Adding a table there could make its owner's UPDATEs fail for want of a replica
		// identity, and taking updates out would rob whoever reads them.
		plan.refused = "also publishes updates or deletes, so somebody else reads it"
	}
	return plan
}

func (p *publication) create(name string) string {
	var tables []string
	for i := range p.tables {
		if t := &p.tables[i]; t.publishable() {
			tables = append(tables, p.member(t))
		}
	}
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
		quoteName(name), strings.Join(tables, ", "))
}

func (p *publication) alter(name string) []string {
	var add, drop []string
	var viaRoot bool
	for i := range p.tables {
		t := &p.tables[i]
		if t.carried || !t.publishable() {
			continue
		}
		viaRoot = viaRoot || t.partitioned && !p.viaRoot
		if t.listed {
			drop = append(drop, t.quoted())
		}
		if t.listed || !p.allTables {
			add = append(add, p.member(t))
		}
	}
	var options []string
	if !p.inserts {
		publish := "insert"
		if p.truncates {
			publish += ", truncate"
		}
		options = append(options, "publish = '"+publish+"'")
	}
	if viaRoot {
		options = append(options, "publish_via_partition_root = true")
	}
	prefix := "ALTER PUBLICATION " + quoteName(name)
	var statements []string
	if len(options) > 0 {
		statements = append(statements, prefix+" SET ("+strings.Join(options, ", ")+")")
	}
	if len(drop) > 0 {
		statements = append(statements, prefix+" DROP TABLE "+strings.Join(drop, ", "))
	}
	if len(add) > 0 {
		statements = append(statements, prefix+" ADD TABLE "+strings.Join(add, ", "))
	}
	return statements
}

// notCarried names the first table that could be published and is not, nil if there is none.
func (p *publication) notCarried() *publishedTable {
	for i := range p.tables {
		if t := &p.tables[i]; t.publishable() && !t.carried {
			return t
		}
	}
	return nil
}

// leftOut says which tables cannot be published and why; empty if all can.
func (p *publication) leftOut() string {
	var out []string
	for i := range p.tables {
		switch t := &p.tables[i]; {
		case t.missing:
			out = append(out, fmt.Sprintf("table %s is not there", t.Canonical))
		case t.unlogged:
			out = append(out, fmt.Sprintf("table %s is unlogged or temporary", t.Canonical))
		case t.noID:
			out = append(out, fmt.Sprintf("table %s has no column %s", t.Canonical, quoteName(t.IDColumn)))
		}
	}
	return strings.Join(out, "; ")
}

func (p *publication) anyPublishable() bool {
	for i := range p.tables {
		if p.tables[i].publishable() {
			return true
		}
	}
	return false
}

func (p *publication) member(t *publishedTable) string {
	if p.major < columnListVersion {
		return t.quoted()
	}
	return t.quoted() + " (" + quoteName(t.IDColumn) + ")"
}

func (t *Table) quoted() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

const publicationSQL = `SELECT pg_has_role(current_user, p.pubowner, 'USAGE'), p.puballtables,
  p.pubinsert, p.pubupdate OR p.pubdelete, p.pubtruncate, p.pubviaroot
FROM pg_catalog.pg_publication p WHERE p.pubname = $1`

// publicationTablesSQL reads attnames and rowfilter, which came with PostgreSQL 15,
// through jsonb, so that it is one statement for all versions. A partitioned table is
// in pg_publication_tables under its own name only if it is published via its root.
const publicationTablesSQL = `SELECT c.oid IS NULL, coalesce(c.relkind = 'p', false), coalesce(c.relpersistence <> 'p', false), a.attnum IS NULL,
  EXISTS (SELECT FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
          WHERE p.pubname = $1 AND r.prrelid = c.oid),
  EXISTS (SELECT FROM pg_catalog.pg_publication_tables pt
          WHERE pt.pubname = $1 AND pt.schemaname = t.schema AND pt.tablename = t.name
            AND coalesce(to_jsonb(pt)->'attnames' ? t.id, true) AND to_jsonb(pt)->>'rowfilter' IS NULL)
FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY t(schema, name, id, n)
LEFT JOIN pg_catalog.pg_namespace s ON s.nspname = t.schema
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = t.name AND c.relkind IN ('r', 'p')
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = t.id AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY t.n`

func readPublication(ctx context.Context, conn *pgx.Conn, name string, tables []Table) (*publication, error) {
	p := &publication{major: serverMajor(conn.PgConn())}
	err := conn.QueryRow(ctx, publicationSQL, name).Scan(&p.owned, &p.allTables, &p.inserts, &p.changes, &p.truncates, &p.viaRoot)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("reading publication %s: %w", name, err)
	}
	p.exists = err == nil
	schemas, names, ids := make([]string, len(tables)), make([]string, len(tables)), make([]string, len(tables))
	for i, t := range tables {
		schemas[i], names[i], ids[i] = t.Schema, t.Name, t.IDColumn
	}
	rows, err := conn.Query(ctx, publicationTablesSQL, name, schemas, names, ids)
	if err == nil {
		p.tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (publishedTable, error) {
			var t publishedTable
			err := row.Scan(&t.missing, &t.partitioned, &t.unlogged, &t.noID, &t.listed, &t.carried)
			return t, err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("reading the tables of publication %s: %w", name, err)
	}
	for i := range p.tables {
		p.tables[i].Table = &tables[i]
		p.tables[i].carried = p.tables[i].carried && p.inserts
	}
	return p, nil
}

// ensurePublication brings the publication about. It returns it as it was before, and
// whether anything was done to it.
func ensurePublication(ctx context.Context, conn *pgx.Conn, name string, tables []Table) (_ *publication, changed bool, err error) {
	before, err := readPublication(ctx, conn, name, tables)
	if err != nil {
		return nil, false, err
	}
	if !before.anyPublishable() {
		return nil, false, &Unavailable{Reason: ReasonPublication, Detail: "there is nothing to publish: " + before.leftOut()}
	}
	after, plan := before, before.plan(name)
	if len(plan.statements) > 0 {
		if err := plan.run(ctx, conn, name); err != nil {
			return nil, false, err
		}
		if after, err = readPublication(ctx, conn, name, tables); err != nil {
			return nil, false, err
		}
	}
	if t := after.notCarried(); t != nil {
		return nil, false, &Unavailable{Reason: ReasonPublication, Detail: fmt.Sprintf(
			"publication %s does not carry table %s under its own name: "+
				"take the partitioned table that it belongs to out of it, or configure another publication", quoteName(name), t.Canonical)}
	}
	return before, len(plan.statements) > 0, nil
}

func (p *publicationPlan) run(ctx context.Context, conn *pgx.Conn, name string) error {
	statements := strings.Join(p.statements, "; ")
	if p.refused != "" {
		return &Unavailable{Reason: ReasonPublication, Detail: fmt.Sprintf(
			"publication %s does not carry every outbox and %s: have its owner run %s, or configure another publication", quoteName(name), p.refused, statements)}
	}
	// Several statements in one message are one transaction.
	_, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	switch sqlState(err) {
	case codePrivilege, codeFeature, codeInvalidParameter, codeNotReady:
		return &Unavailable{ReasonPublication, "somebody who may has to run " + statements, err}
	}
	if err != nil {
		return fmt.Errorf("bringing about publication %s: %w", name, err)
	}
	return nil
}
