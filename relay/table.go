package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/config"
)

// Table is one outbox table as the relay found it in the catalog. It is immutable
// and safe for concurrent use.
type Table struct {
	// Name is the qualified name, quoted where SQL needs it; it names the outbox in
	// claims, failures, logs and metrics.
	Name string
	// Schema and Relation are the same name in parts, unquoted.
	Schema, Relation string
	OID              uint32
	Partitioned      bool
	// Columns are all columns of the table, in its order.
	Columns []Column
	// IDColumn is the key's column.
	IDColumn Column
	// SequenceKey says that the key is an integer from a sequence or identity, so that its
	// order is the order of insertion.
	SequenceKey bool
	// Ledger is the table of published events, nil where the outbox keeps none.
	Ledger *Ledger
	// Sends is where routes that send at most once claim their sends, nil where none does.
	Sends *SendTable

	cfg      config.Outbox
	names    mapping
	selected []Column // of select
	// leftAlone are columns that are only written, and that this role may not write.
	leftAlone []string
	orderBy   []string // columns, unquoted; empty: the key
	// sinks maps a route to its destination's index; ordered says which routes keep order, blocking of which a dead
	// row holds its line, and once which send at most once.
	sinks    []int
	ordered  []bool
	blocking []bool
	once     []bool
	private  []bool // routes whose outcomes name recipients: those stay in the database
	// destinations is how many there are, those of other tables included.
	destinations int
	builder      *builder
	sql          statements
}

// Sink is what a table needs to know of a destination.
type Sink struct {
	Name    string
	Ordered bool
	// FIFO destinations deduplicate by event id, which must then be unique.
	FIFO bool
	// Addressed destinations send to each recipient by itself, and at most once.
	Addressed bool
}

// TableError says what is wrong with an outbox table and how to mend it.
type TableError struct {
	Table  string
	Detail string
	Hint   string // a statement or a change of the configuration
}

// Error implements error.
func (e *TableError) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("outbox %s: %s", e.Table, e.Detail)
	}
	return fmt.Sprintf("outbox %s: %s; %s", e.Table, e.Detail, e.Hint)
}

// OpenTable looks an outbox up in the catalog and checks that it has what its
// configuration needs. Everything that is wrong is a *TableError, joined; any other error
// is the connection's. sinks are all destinations; their order gives their indexes.
func OpenTable(ctx context.Context, conn *pgx.Conn, cfg config.Outbox, sinks []Sink) (*Table, error) {
	t := &Table{cfg: cfg, destinations: len(sinks)}
	if err := t.find(ctx, conn); err != nil {
		return nil, err
	}
	keys, err := t.readColumns(ctx, conn)
	if err != nil {
		return nil, err
	}
	problems := t.mapColumns(cfg)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if problems, err = t.findRules(ctx, conn); err != nil {
		return nil, err
	}
	if problems, err := t.tryStatus(ctx, conn); len(problems) > 0 || err != nil {
		return nil, errors.Join(append(problems, err)...)
	}
	if problem, err := t.readJoin(ctx, conn); problem != nil || err != nil {
		return nil, errors.Join(problem, err)
	}
	if problem, err := t.trySet(ctx, conn); problem != nil || err != nil {
		return nil, errors.Join(problem, err)
	}
	if problem := t.mapKind(cfg.Kind); problem != nil {
		problems = append(problems, problem)
	}
	problems = append(problems, t.route(sinks)...)
	problems = append(problems, t.checkKey(keys)...)
	if problem := t.checkRetention(keys); problem != nil {
		problems = append(problems, problem)
	}
	if t.builder, err = newBuilder(t.Name, cfg.Routes, t.fields(), t.IDColumn); err != nil {
		problems = append(problems, &TableError{t.Name, strings.ReplaceAll(err.Error(), "\n", "; "), "its columns are " + columnList(t.fields())})
	} else {
		problems = append(problems, t.checkOrder(sinks, keys)...)
	}
	more, err := t.findLedger(ctx, conn, keys)
	if err != nil {
		return nil, err
	}
	problems = append(problems, more...)
	if more, err = t.findSends(ctx, conn, keys); err != nil {
		return nil, err
	}
	problems = append(problems, more...)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	t.sql = newStatements(t)
	return t, nil
}

func (t *Table) find(ctx context.Context, conn *pgx.Conn) error {
	var kind string
	err := conn.QueryRow(ctx, `
		SELECT c.oid, n.nspname, c.relname, c.relkind::text, format('%I.%I', n.nspname, c.relname)
		  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		 WHERE c.oid = pg_catalog.to_regclass($1)`, t.cfg.Table).
		Scan(&t.OID, &t.Schema, &t.Relation, &kind, &t.Name)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &TableError{t.cfg.Table, "there is no such table, or this role may not see it",
			"check outboxes.table (schema.table, quoted as in SQL), the database and USAGE on the schema"}
	case sqlState(err) == "42501":
		name, _ := config.ParseTable(t.cfg.Table) // validated before
		return &TableError{t.cfg.Table, "permission denied for schema " + name.Schema,
			fmt.Sprintf("run: GRANT USAGE ON SCHEMA %s TO %s", quote(name.Schema), quote(conn.Config().User))}
	case err != nil:
		return fmt.Errorf("looking up outbox %s: %w", t.cfg.Table, err)
	case kind != "r" && kind != "p":
		return &TableError{t.Name, "it is not a table (a view, foreign table or other relation has no inserts to relay)",
			"name the table that the rows are inserted into"}
	}
	t.Partitioned = kind == "p"
	return nil
}

// keyFacts is what the catalog says about the columns that serve as keys.
type keyFacts struct {
	indexed  map[string]bool // leading column of a valid index
	unique   map[string]bool // alone unique
	sequence map[string]bool // identity, or default nextval
	leading  map[string]bool // leading column of a valid index that may be partial
}

// baseType adds to a FROM list that has a column a its type under any domains, as b.
const baseType = `CROSS JOIN LATERAL (
		       WITH RECURSIVE base(oid, under) AS (
		            SELECT t.oid, t.typbasetype FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
		            UNION ALL SELECT t.oid, t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid = base.under)
		       SELECT oid FROM base WHERE under = 0) b`

func (t *Table) readColumns(ctx context.Context, conn *pgx.Conn) (keyFacts, error) {
	facts := keyFacts{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	rows, err := conn.Query(ctx, `
		SELECT a.attname, pg_catalog.format_type(b.oid, -1), pg_catalog.format_type(a.atttypid, a.atttypmod),
		       (SELECT t.typtype = 'e' FROM pg_catalog.pg_type t WHERE t.oid = b.oid), a.attnotnull,
		       a.attgenerated = '' AND a.attidentity <> 'a' AND has_column_privilege(a.attrelid, a.attnum, 'UPDATE'),
		       a.attidentity <> '' OR coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%', false),
		       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND i.indisvalid
		                  AND i.indkey[0] = a.attnum AND i.indpred IS NULL),
		       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indisunique
		                  AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL),
		       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indkey[0] = a.attnum)
		  FROM pg_catalog.pg_attribute a
		`+baseType+`
		  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, t.OID)
	if err != nil {
		return facts, fmt.Errorf("reading columns of %s: %w", t.Name, err)
	}
	var c Column
	var sequence, indexed, unique, leading bool
	_, err = pgx.ForEachRow(rows, []any{&c.Name, &c.Type, &c.Declared, &c.Enum, &c.NotNull, &c.Written, &sequence, &indexed, &unique, &leading}, func() error {
		t.Columns = append(t.Columns, c)
		facts.sequence[c.Name], facts.indexed[c.Name], facts.unique[c.Name], facts.leading[c.Name] = sequence, indexed, unique, leading
		return nil
	})
	if err != nil {
		return facts, fmt.Errorf("reading columns of %s: %w", t.Name, err)
	}
	return facts, nil
}

// findRules refuses rules on what the relay does: PostgreSQL rewrites no statement that has its changes in a WITH, so the first stamp would fail,
// after the send.
func (t *Table) findRules(ctx context.Context, conn *pgx.Conn) (problems []error, err error) {
	rows, err := conn.Query(ctx, `SELECT r.rulename::text, CASE r.ev_type WHEN '2' THEN 'UPDATE' ELSE 'DELETE' END FROM pg_catalog.pg_rewrite r
		WHERE r.ev_class = $1 AND r.ev_enabled <> 'D' AND (r.ev_type = '2' OR r.ev_type = '4' AND $2) ORDER BY 1`, t.OID, t.Deletes())
	if err != nil {
		return nil, fmt.Errorf("reading the rules of %s: %w", t.Name, err)
	}
	var name, event string
	_, err = pgx.ForEachRow(rows, []any{&name, &event}, func() error {
		problems = append(problems, &TableError{t.Name,
			fmt.Sprintf("its rule %q rewrites each %s, and PostgreSQL has none beside the relay's statements", name, event),
			fmt.Sprintf("make a trigger of it, then run: DROP RULE %s ON %s", quote(name), t.Name)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the rules of %s: %w", t.Name, err)
	}
	return problems, nil
}

func (t *Table) column(name string) (Column, bool) {
	i := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return Column{}, false
	}
	return t.Columns[i], true
}

// route resolves the routes' destinations and decides which of them keep order.
func (t *Table) route(sinks []Sink) (problems []error) {
	for _, r := range t.cfg.Routes {
		i := slices.IndexFunc(sinks, func(s Sink) bool { return s.Name == r.To })
		if i < 0 {
			problems = append(problems, &TableError{t.Name, fmt.Sprintf("route to %q: there is no such destination", r.To), ""})
			continue
		}
		t.sinks = append(t.sinks, i)
		t.ordered = append(t.ordered, sinks[i].Ordered && r.Order != config.OrderNone && t.names.orderingKey != "")
		t.private = append(t.private, sinks[i].Addressed)
		t.once = append(t.once, sinks[i].Addressed || r.Delivery == config.AtMostOnce)
		block := r.OnDead == config.OnDeadBlock
		if block && t.names.orderingKey == "" {
			problems = append(problems, &TableError{t.Name, fmt.Sprintf("route %q says on_dead: block, but there is no ordering key to hold", r.Kind),
				"map a column with columns: {ordering_key: …}, or leave on_dead out; the table's columns are " + columnList(t.Columns)})
		}
		t.blocking = append(t.blocking, block)
	}
	return problems
}

// checkKey wants an index that finds a row by its key: every claim and stamp goes by it.
func (t *Table) checkKey(facts keyFacts) (problems []error) {
	id := t.names.id
	t.SequenceKey = facts.sequence[id] && slices.Contains([]string{"smallint", "integer", "bigint"}, t.IDColumn.Type)
	switch {
	case !facts.indexed[id]:
		create := "CREATE UNIQUE INDEX CONCURRENTLY"
		if t.Partitioned { // where PostgreSQL takes neither word
			create = "CREATE INDEX"
		}
		problems = append(problems, &TableError{t.Name, fmt.Sprintf("no index begins with the key %q, so every claim would read the whole table", id),
			fmt.Sprintf("run: %s ON %s (%s)", create, t.Name, quote(id))})
	case !facts.unique[id] && !t.Partitioned:
		// A partitioned table cannot declare it without its partition key.
		problems = append(problems, &TableError{t.Name, fmt.Sprintf("the key %q is not unique", id),
			fmt.Sprintf("run: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s)", t.Name, quote(id))})
	}
	return problems
}

// checkOrder refuses ordered routes that could not keep what G3 promises.
func (t *Table) checkOrder(sinks []Sink, facts keyFacts) (problems []error) {
	for _, name := range t.orderBy {
		if c, _ := t.column(name); t.Ordered() && !c.NotNull {
			problems = append(problems, &TableError{t.Name, fmt.Sprintf("order_by: %q may be NULL, and a row without it has no place in the order of its key", name),
				fmt.Sprintf("run: ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", t.Name, quote(name))})
		}
	}
	for i, r := range t.cfg.Routes {
		if !sinks[t.sinks[i]].FIFO {
			continue
		}
		// A route with a dedup_id of its own deduplicates by that.
		if r.DedupID == "" {
			if problem := t.checkIdentity(fmt.Sprintf("route %q goes to a FIFO queue, which deduplicates by event id", r.Kind), facts); problem != nil {
				problems = append(problems, problem)
			}
		}
		if r.Order == config.OrderNone {
			continue
		}
		if !t.SequenceKey && len(t.orderBy) == 0 {
			problems = append(problems, &TableError{t.Name,
				fmt.Sprintf("route %q goes to a FIFO queue, but the key %q (%s) is not an integer from a sequence, so it gives no order",
					r.Kind, t.names.id, t.IDColumn.Type),
				"give order_by: columns that rise with each row, or order: none on the route"})
		}
		if !t.builder.groupIsKey(i, t.names.orderingKey) {
			problems = append(problems, &TableError{t.Name,
				fmt.Sprintf("route %q goes to a FIFO queue, but its group is not the ordering key alone, so two keys could share a message group out of order", r.Kind),
				"leave group out, which takes the ordering key, or say order: none on the route"})
		}
	}
	return problems
}

// checkIdentity wants a unique event id for whoever goes by it.
func (t *Table) checkIdentity(why string, facts keyFacts) error {
	if t.names.eventID == "" && t.IDColumn.Type != "uuid" {
		return &TableError{t.Name, why + ", but there is no event_id column and the key is no uuid",
			fmt.Sprintf("run: ALTER TABLE %s ADD COLUMN event_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE", t.Name)}
	}
	if t.names.eventID != "" && !facts.unique[t.names.eventID] && !t.Partitioned {
		return &TableError{t.Name, fmt.Sprintf("%s, but %q is not unique", why, t.names.eventID),
			fmt.Sprintf("run: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s)", t.Name, quote(t.names.eventID))}
	}
	return nil
}

// Ordered says whether any route keeps an order.
func (t *Table) Ordered() bool { return slices.Contains(t.ordered, true) }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// KeyGivesOrder says that a greater key is a later insert that nothing but its mark makes settled or pending, so that a look may begin
// behind one.
func (t *Table) KeyGivesOrder() bool {
	return t.SequenceKey && !t.Partitioned && !t.Conditional() && len(t.lookOrder()) == 1
}

// Sinks are the destinations that the table's routes lead to, by their index.
func (t *Table) Sinks() []int { return t.sinks }

// Own says whether it is the table that `pgrelay migrate up` makes.
func (t *Table) Own() bool { return t.Schema == "pgrelay" && t.Relation == "outbox_events" }
