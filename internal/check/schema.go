package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"pgrelay/migrations"
)

// schemaFacts is what this role finds of the schema pgrelay.
type schemaFacts struct {
	Exists, Usage bool
	Lacks         []string // privileges that are missing: "pgrelay.claims (INSERT, UPDATE)"
	Hidden        []string // tables of which row security hides rows
	Migrated      error    // nil, or one of the errors that package migrations names
}

// grantsSQL lists what the role lacks in the schema. A sequence of an identity column needs no grant.
const grantsSQL = `SELECT format('pgrelay.%I (%s)', c.relname, array_to_string(l.lacks, ', ')), cardinality(l.lacks) > 0, c.relkind <> 'S' AND ` + hiddenSQL + `
  FROM pg_catalog.pg_class c
 CROSS JOIN LATERAL (SELECT ARRAY(
       SELECT p FROM unnest(CASE WHEN c.relkind = 'S' THEN '{USAGE}' WHEN c.relname = 'migrations' THEN '{SELECT}'
                                 ELSE '{SELECT,INSERT,UPDATE,DELETE}' END::text[]) p
        WHERE NOT CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, p) ELSE has_table_privilege(c.oid, p) END) AS lacks) l
 WHERE c.relnamespace = to_regnamespace('pgrelay') AND (c.relkind = 'r' OR c.relname = 'generations')
 ORDER BY c.relname`

// hiddenSQL is true for a table c of which row security may hide rows from this role: it applies, and no policy lets the role
// read and change every row, or one narrows what others allow.
const hiddenSQL = `(row_security_active(c.oid) AND (
	EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive AND ` + policyAppliesSQL + `)
	OR EXISTS (SELECT FROM unnest(ARRAY['r', 'w']) cmd WHERE NOT EXISTS (
		SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd::text IN ('*', cmd)
		   AND pg_get_expr(p.polqual, p.polrelid) = 'true' AND ` + policyAppliesSQL + `))))`

const policyAppliesSQL = `EXISTS (SELECT FROM unnest(p.polroles) r WHERE r = 0 OR pg_has_role(r, 'USAGE'))`

func (d *doctor) checkSchema(ctx context.Context) error {
	f := schemaFacts{Exists: true}
	err := d.conn.QueryRow(ctx, `SELECT has_schema_privilege(oid, 'USAGE') FROM pg_catalog.pg_namespace WHERE nspname = 'pgrelay'`).Scan(&f.Usage)
	if errors.Is(err, pgx.ErrNoRows) {
		f.Exists, err = false, nil
	}
	if err == nil && f.Exists {
		err = f.readGrants(ctx, d.conn)
	}
	if err != nil {
		return fmt.Errorf("reading the schema pgrelay: %w", err)
	}
	if f.Usage && len(f.Lacks) == 0 {
		f.Migrated = migrations.Check(ctx, d.conn)
		if f.Migrated != nil && !isVersion(f.Migrated) {
			return f.Migrated
		}
	}
	d.schema = judgeSchema(f, d.server.Role)
	d.add(d.schema)
	return nil
}

func isVersion(err error) bool {
	return errors.Is(err, migrations.ErrMissing) || errors.Is(err, migrations.ErrOutdated) || errors.Is(err, migrations.ErrNewer)
}

func (f *schemaFacts) readGrants(ctx context.Context, conn *pgx.Conn) error {
	rows, _ := conn.Query(ctx, grantsSQL) // its error comes back from the rows
	var lacks string
	var lacking, hidden bool
	_, err := pgx.ForEachRow(rows, []any{&lacks, &lacking, &hidden}, func() error {
		if lacking {
			f.Lacks = append(f.Lacks, lacks)
		}
		if hidden {
			table, _, _ := strings.Cut(lacks, " (")
			f.Hidden = append(f.Hidden, table)
		}
		return nil
	})
	return err
}

// judgeSchema names the first cause only: what follows from it is mended with it.
func judgeSchema(f schemaFacts, role string) Line {
	const name = "schema pgrelay"
	grants := fmt.Sprintf("have its owner run: GRANT USAGE ON SCHEMA pgrelay TO %[1]s; "+
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgrelay TO %[1]s; "+
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgrelay TO %[1]s", quote(role))
	switch {
	case !f.Exists:
		return failure(name, "run: pgrelay migrate up", "is not there")
	case !f.Usage:
		return failure(name, grants, "this role has no USAGE on it")
	case len(f.Lacks) > 0:
		return failure(name, grants, "this role lacks rights: %s", strings.Join(f.Lacks, "; "))
	case f.Migrated != nil:
		text, fix, _ := strings.Cut(f.Migrated.Error(), "; ")
		return failure(name, fix, "%s", strings.TrimPrefix(text, "the schema pgrelay "))
	case len(f.Hidden) > 0:
		return failure(name, openRows(f.Hidden[0], role), "row security hides rows of %s from this role", strings.Join(f.Hidden, ", "))
	}
	return ok(name, "is up to date, and this role has its rights")
}

func openRows(table, role string) string {
	return fmt.Sprintf("run: CREATE POLICY pgrelay ON %s TO %s USING (true)", table, quote(role))
}
