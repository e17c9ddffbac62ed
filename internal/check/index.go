package check

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"pgrelay/relay"
)

// part is a table that holds rows: the outbox itself or a partition.
type part struct {
	Name    string
	Indexes []index
}

// index is a valid B-tree.
type index struct {
	Columns   []string // of its key; an expression is an empty name
	Predicate string   // as the server prints it
}

const partsSQL = `SELECT format('%I.%I', n.nspname, c.relname), i.indexrelid IS NOT NULL, coalesce(pg_get_expr(i.indpred, i.indrelid), ''),
	ARRAY(SELECT coalesce(a.attname::text, '') FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, nth)
		LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum AND k.attnum > 0
		WHERE k.nth <= i.indnkeyatts ORDER BY k.nth)
  FROM (SELECT $1::oid AS oid UNION SELECT relid::oid FROM pg_partition_tree($1::oid::regclass) WHERE isleaf) p
  JOIN pg_catalog.pg_class c ON c.oid = p.oid AND c.relkind = 'r'
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN (pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = x.relam AND m.amname = 'btree')
	ON i.indrelid = c.oid AND i.indisvalid AND i.indisready
 ORDER BY 1`

func readParts(ctx context.Context, conn *pgx.Conn, t *relay.Table) (parts []part, err error) {
	rows, _ := conn.Query(ctx, partsSQL, t.OID) // its error comes back from the rows
	var name string
	var has bool
	var ix index
	_, err = pgx.ForEachRow(rows, []any{&name, &has, &ix.Predicate, &ix.Columns}, func() error {
		if len(parts) == 0 || parts[len(parts)-1].Name != name {
			parts = append(parts, part{Name: name})
		}
		if has {
			last := &parts[len(parts)-1]
			last.Indexes = append(last.Indexes, index{slices.Clone(ix.Columns), ix.Predicate})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the indexes of %s: %w", t.Name, err)
	}
	return parts, nil
}

// judgeIndexes names each index that is missing, on the first part that misses it.
func judgeIndexes(name string, f outboxFacts) (lines []Line) {
	for _, want := range f.Wanted {
		missing := slices.IndexFunc(f.Parts, func(p part) bool {
			return !slices.ContainsFunc(p.Indexes, func(ix index) bool { return serves(ix, want) })
		})
		if missing < 0 {
			continue
		}
		on := ""
		if at := f.Parts[missing].Name; at != f.Name {
			on = " on its partition " + at
		}
		lines = append(lines, failure(name, "run: "+want.DDL, "no index%s serves %s, so the whole table is read each time", on, want.Purpose))
	}
	return lines
}

// serves says whether the planner can use an index where one is wanted: it begins with the columns, holds pending rows only,
// and its predicate says nothing that the statement doesn't. One that begins with the status may hold all rows.
func serves(ix index, want relay.Index) bool {
	columns, tests := ix.Columns, conjuncts(ix.Predicate)
	restricts := func(test string) bool { return implies(want.Where[0], test) }
	if mark, ok := readStatus(want.Where[0]); ok && len(mark.values) == 1 && len(columns) > 0 && columns[0] == mark.column {
		columns, restricts = columns[1:], func(string) bool { return true }
	}
	if len(columns) < want.Leading || !slices.Equal(columns[:want.Leading], want.Columns[:want.Leading]) {
		return false
	}
	return slices.ContainsFunc(tests, restricts) && !slices.ContainsFunc(tests, func(test string) bool {
		return test != "" && !slices.ContainsFunc(want.Where, func(asked string) bool { return implies(asked, test) })
	})
}

// implies says that a row which passes one test passes another: the same, or one of a status that allows more values.
func implies(asked, test string) bool {
	a, ok := readStatus(asked)
	b, also := readStatus(test)
	if !ok || !also {
		return asked == test
	}
	return a.column == b.column && !slices.ContainsFunc(a.values, func(v string) bool { return !slices.Contains(b.values, v) })
}

// status is the test of a column against literals.
type status struct {
	column string
	values []string
}

var (
	// As conjuncts leave it, the column perhaps cast: status)::text = 'A'::text.
	comparison = regexp.MustCompile(`^(.+?)\)?(?:::[\w ]+)? (?:= |IN \()(.*)$`)
	// A literal, or the name of a type behind it.
	literal = regexp.MustCompile(`'((?:[^']|'')*)'|::(?:"(?:[^"]|"")*"|\w+)(?:\.(?:"(?:[^"]|"")*"|\w+))?|(-?\d+)`)
)

// readStatus reads such a test, as relay writes it or as the server prints it.
func readStatus(test string) (s status, ok bool) {
	m := comparison.FindStringSubmatch(test)
	if m == nil || strings.Contains(test, ") OR (") {
		return s, false
	}
	s.column = m[1]
	for _, l := range literal.FindAllStringSubmatch(m[2], -1) {
		if !strings.HasPrefix(l[0], "::") {
			s.values = append(s.values, strings.ReplaceAll(l[1], "''", "'")+l[2])
		}
	}
	return s, len(s.values) > 0
}

// conjuncts are the tests of a predicate with their columns unquoted; an empty one of no predicate. What is more than tests joined by
// AND comes out as something that no statement asks for.
func conjuncts(predicate string) []string {
	var tests []string
	for test := range strings.SplitSeq(predicate, ") AND (") {
		test = strings.Trim(test, "()")
		if m := quotedColumn.FindStringSubmatch(test); m != nil {
			test = strings.ReplaceAll(m[1], `""`, `"`) + m[2]
		}
		tests = append(tests, test)
	}
	return tests
}

var quotedColumn = regexp.MustCompile(`^"((?:[^"]|"")*)"(.*)$`)
