package relay

import (
	"fmt"
	"strconv"
	"strings"
)

// statements are the SQL of one outbox, built once from its columns. Every statement
// names its columns, qualifies its relations and casts keys through text, so that any
// key type works and no search_path matters. Traps are noted where they bite:
// `NOT IN (SELECT …)` is hashed where `<> ALL(array)` is linear, MATERIALIZED CTEs keep
// a plan from claiming more than was picked, and each data-modifying CTE joins its fence.
type statements struct {
	keys    string // the ordering keys of ids
	line    string // the next ids of a line; empty where no route keeps order
	claim   string
	answers string
	stamp   string
	rescue  string
	release string
	// Of a table with a status: claims that nobody knows of, and rows that somebody else left in processing.
	giveUp, takeBack string
	looks            looks
}

// looks are the poller's statements.
type looks struct {
	first, next string    // pending rows by key, from the beginning and behind a key
	deferred    [2]string // rows that their producer deferred and that are due
	retries     [2]string // failures that are due
	orphans     string    // failures whose row is gone or settled
	nextDue     string    // seconds until something is due
}

func newStatements(t *Table) statements {
	x := expander(t)
	line, giveUp, takeBack := "", "", ""
	if t.Ordered() {
		line = x.Replace(lineSQL(t))
	}
	if t.hasStatus() {
		giveUp, takeBack = x.Replace(giveUpSQL), x.Replace(takeBackSQL(t))
	}
	return statements{
		keys:    x.Replace(keysSQL),
		line:    line,
		claim:   x.Replace(claimSQL(t)),
		answers: x.Replace(answersSQL),
		stamp:   x.Replace(stampSQL),
		rescue:  x.Replace(rescueSQL),
		release: x.Replace(releaseSQL),
		giveUp:  giveUp, takeBack: takeBack,
		looks: newLooks(t, x, false),
	}
}

// expander replaces the @words of the statement texts by the table's own names.
func expander(t *Table) *strings.Replacer {
	n := t.names
	rel := t.relation()
	backIsFree := "g.outcome = 'back' OR " // of its row nothing is written
	if t.hasStatus() {
		backIsFree = ""
	}
	words := []string{
		"@@", "@", // of names that are in the text already: escape
		"@unmarked", t.unmark(),
		"@outbox", rel,
		"@name", stringLiteral(t.Name),
		"@keys", widest(t.IDColumn.Type) + "[]",
		"@keytype", widest(t.IDColumn.Type),
		"@o.id", "o." + quote(n.id),
		"@p.id", "p." + quote(n.id),
		"@id", quote(n.id),
		"@o.pending", t.pending("o"),
		"@o.unsettled", t.unsettled("o"),
		"@p.unsettled", t.unsettled("p"),
		"@o.settled", t.settled("o"),
		"@o.published", t.published("o"),
		"@o.processing", t.processing("o"),
		"@o.due", t.due("o"),
		"@p.due", t.due("p"),
		"@o.undeferred", t.undeferred("o"),
		"@o.available", t.column0("o", n.availableAt, "NULL::timestamptz"),
		"@o.key", t.column0("o", n.orderingKey, "NULL::text"),
		"@p.key", t.column0("p", n.orderingKey, "NULL::text"),
		"@o.event_id", t.column0("o", n.eventID, "NULL::text"),
		"@routeroom", strconv.Itoa(t.routeRoom(0) + 1), // SQL counts from 1
		"@event", t.event(), "@subject", t.identity("o"),
		"@stamped", t.recording("locked r JOIN taken t USING (id) WHERE t.same AND t.pending AND t.outcome = 'delivered'"),
		"@dropping", t.dropping(), "@orDropped", t.orDropped(),
		"@marked", t.marked(),
		"@mark", t.mark(rel),
		"@settles", t.settles(), "@unwritten", unwrittenSQL("t"),
		"@rescued", t.recording("locked r"),
		"@struck", t.striking(),
		"@burying", t.burying(t.stampedFailure()),
		"@crashed", t.burying(crashed),
		"@returned", t.returned(),
		"@revived", t.revived(),
		"@back", t.back(),
		"@freeback", backIsFree,
	}
	words = append(words, t.joinWords()...)
	holder := strings.NewReplacer(words...).Replace(t.heldBy())
	return strings.NewReplacer(append(words, "@o.holder", holder)...)
}

// widest is the type as which a key's text is read: an integer column may be made a bigint while the relay runs, and an index of
// any integer takes it.
func widest(sqlType string) string {
	switch sqlType {
	case "smallint", "integer":
		return "bigint"
	}
	return sqlType
}

// escape keeps the expander's hands off what stands in a text already.
func escape(sql string) string { return strings.ReplaceAll(sql, "@", "@@") }

// due is true for rows that no producer deferred, or whose time has come. Infinity never comes.
func (t *Table) due(alias string) string {
	if t.names.availableAt == "" {
		return "true"
	}
	c := alias + "." + quote(t.names.availableAt)
	return "(" + c + " IS NULL OR " + c + " <= now())"
}

func (t *Table) undeferred(alias string) string {
	if t.names.availableAt == "" {
		return "true"
	}
	return alias + "." + quote(t.names.availableAt) + " IS NULL"
}

func (t *Table) column0(alias, name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return alias + "." + quote(name)
}

// routed adds to a FROM list the row's route (-1: none), its destination's index (-1) and
// the destination again as `line` where the route keeps order (NULL: it doesn't).
func (t *Table) routed(kind string) string {
	return fmt.Sprintf(`CROSS JOIN LATERAL (SELECT %s AS route) rt
	CROSS JOIN LATERAL (SELECT coalesce((%s)[rt.route+1], -1) AS dest, (%s)[rt.route+1] AS line) dt`,
		routeCase(t.cfg.Routes, kind+"::text"), t.sinkArray(), t.lineArray())
}

func (t *Table) sinkArray() string {
	items := make([]string, len(t.sinks))
	for i, s := range t.sinks {
		items[i] = strconv.Itoa(s)
	}
	return "ARRAY[" + strings.Join(items, ",") + "]::int[]"
}

func (t *Table) lineArray() string {
	items := make([]string, len(t.sinks))
	for i, s := range t.sinks {
		items[i] = "NULL"
		if t.ordered[i] {
			items[i] = strconv.Itoa(s)
		}
	}
	return "ARRAY[" + strings.Join(items, ",") + "]::int[]"
}

// order lists the columns that give the order, the key last so that it is total.
func (t *Table) order() []string {
	for _, c := range t.orderBy {
		if c == t.names.id {
			return t.orderBy
		}
	}
	return append(append([]string(nil), t.orderBy...), t.names.id)
}

// list joins columns, those of the order unless others are given: list("o.%s") gives o."a", o."b"; "k%d" gives k0, k1.
func (t *Table) list(format string, cols ...string) string {
	if len(cols) == 0 {
		cols = t.order()
	}
	items := make([]string, len(cols))
	for i, c := range cols {
		if strings.Contains(format, "%d") {
			items[i] = fmt.Sprintf(format, i)
			continue
		}
		items[i] = fmt.Sprintf(format, escape(quote(c)))
	}
	return strings.Join(items, ", ")
}
