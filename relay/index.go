package relay

import (
	"fmt"
	"strings"
)

// Index is one index that the relay's statements need beside the key's, and what one that serves looks like.
type Index struct {
	Purpose string // what it is for, as in "looks for pending rows"
	// Columns are those of the index that DDL makes; one that begins with the first Leading of them serves as well.
	Columns []string
	Leading int
	// Where is the predicate of that index, a test of NULL each, in names as in the catalog, unquoted. An index may leave out
	// any but the first, and may have no other: the planner could not prove it.
	Where []string
	DDL   string
}

// Indexes are those that looks and claims go by. Without one the relay works, but reads the whole table each time.
func (t *Table) Indexes() []Index {
	pending := []string{t.names.publishedAt + isNull}
	if t.names.deadAt != "" {
		pending = append(pending, t.names.deadAt+isNull)
	}
	with := func(more ...string) []string { return append(pending[:len(pending):len(pending)], more...) }
	undeferred, available := pending, t.names.availableAt
	if available != "" {
		undeferred = with(available + isNull)
	}
	all := []Index{t.index("looks for pending rows", 1, undeferred, t.lookOrder()...)}
	if available != "" {
		all = append(all, t.index("looks for deferred rows that are due", 1, with(available+isNotNull), available, t.names.id))
	}
	if !t.Ordered() {
		return all
	}
	key := t.names.orderingKey
	// Behind the key and the order's first column few rows are left to sort.
	all = append(all, t.index("the first pending row of an ordering key", 2,
		append(undeferred[:len(undeferred):len(undeferred)], key+isNotNull), append([]string{key}, t.order()...)...))
	if available != "" {
		all = append(all, t.index("deferred rows of an ordering key", 1, with(available+isNotNull, key+isNotNull), key, available, t.names.id))
		if t.lows() {
			all = append(all, t.index("deferred rows of an ordering key that are new", 2, with(available+isNotNull, key+isNotNull), key, t.names.id))
		}
	}
	return all
}

const (
	isNull    = " IS NULL"
	isNotNull = " IS NOT NULL"
)

func (t *Table) index(purpose string, leading int, where []string, columns ...string) Index {
	quoted, tests := make([]string, len(columns)), make([]string, len(where))
	for i, c := range columns {
		quoted[i] = quote(c)
	}
	for i, w := range where {
		at := strings.LastIndex(w, " IS ")
		tests[i] = quote(w[:at]) + w[at:]
	}
	concurrently := "CONCURRENTLY "
	if t.Partitioned {
		concurrently = "" // PostgreSQL has it for partitions only
	}
	return Index{purpose, columns, leading, where,
		fmt.Sprintf("CREATE INDEX %sON %s (%s) WHERE %s", concurrently, t.Name, strings.Join(quoted, ", "), strings.Join(tests, " AND "))}
}

// Marks are the columns that the relay writes.
func (t *Table) Marks() []string {
	if t.names.deadAt == "" {
		return []string{t.names.publishedAt}
	}
	return []string{t.names.publishedAt, t.names.deadAt}
}

// OrderedByKey says that a route keeps an order that is the key's own.
func (t *Table) OrderedByKey() bool { return t.Ordered() && t.order()[0] == t.names.id }
