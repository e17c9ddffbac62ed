package relay

import (
	"fmt"
	"slices"
	"strings"
)

// A dead row of a route that says on_dead: block holds its line: the rows behind it wait until it is retried or discarded. Its
// failures row names the line, by ordering key and destination, so that one probe of a small index finds it whatever columns the table
// has. What is pending again, or gone, holds nothing.

// Blocks says whether a dead row of any route holds its line.
func (t *Table) Blocks() bool { return slices.Contains(t.blocking, true) }

// holds is the destination of the line that the row holds once it is dead or uncertain, nil if it lets the line go.
func (d *delivery) holds() *string {
	if d.line == "" || !d.table.blocking[d.route] {
		return nil
	}
	return &d.table.cfg.Routes[d.route].To
}

// holdsOn says whether the row, which has a line, holds it after its verdict: it waits for its retry, or is dead or uncertain.
func (d *delivery) holdsOn() bool {
	switch d.verdict.kind {
	case verdictRetry, verdictUnknown:
		return true
	case verdictDead, verdictUncertain:
		return d.holds() != nil
	default:
		return false
	}
}

// holdsArray is the same by route, for SQL.
func (t *Table) holdsArray() string {
	items := make([]string, len(t.blocking))
	for i, block := range t.blocking {
		items[i] = "NULL"
		if block && t.ordered[i] {
			items[i] = stringLiteral(t.cfg.Routes[i].To)
		}
	}
	return "ARRAY[" + strings.Join(items, ", ") + "]::text[]"
}

// holderSQL selects columns of the first row p that holds a line: key and sink are expressions of its ordering key as text and of its
// destination's index, before a list of expressions of the place in the order in front of which it has to stand.
func holderSQL(t *Table, columns, key, sink, before string) string {
	names := make([]string, slices.Max(t.sinks)+1)
	for i := range names {
		names[i] = "NULL"
	}
	for route, sink := range t.sinks {
		names[sink] = stringLiteral(t.cfg.Routes[route].To)
	}
	return fmt.Sprintf(`SELECT %s FROM pgrelay.failures d JOIN @outbox p ON @p.id = d.row_id::@keytype
		 WHERE d.outbox = @name AND d.dead_at IS NOT NULL AND d.holds_key = %s AND d.holds_to = (ARRAY[%s]::text[])[%s + 1]
		   AND (@p.unsettled) IS NOT TRUE AND (%s) < (%s) ORDER BY %s LIMIT 1`,
		columns, key, escape(strings.Join(names, ", ")), sink, t.list("p.%s"), before, t.list("p.%s"))
}

// heldBy is the key, as text, of the dead row that holds the line of o, which is joined with @o.routed; NULL if none does.
func (t *Table) heldBy() string {
	if !t.Blocks() {
		return "NULL::text"
	}
	return "(" + holderSQL(t, "@p.id::text", "@o.key::text", "dt.line", t.list("o.%s")) + ")"
}
