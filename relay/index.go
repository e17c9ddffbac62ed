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
	// Where is the predicate of that index, in names as in the catalog, unquoted: tests of NULL, or a status that is a value or one of
	// several, as literals. An index may leave out any but the first, and may have no other: the planner could not prove it.
	Where []string
	DDL   string
}

// Indexes are those that looks and claims go by. Without one the relay works, but reads the whole table each time.
func (t *Table) Indexes() []Index {
	pending, unsettled := t.markTests()
	with := func(tests []test, more ...test) []test { return append(tests[:len(tests):len(tests)], more...) }
	available := t.names.availableAt
	deferred, undeferred := test{available, isNotNull}, []test(nil)
	if available != "" {
		undeferred = []test{{available, isNull}}
	}
	all := []Index{t.index("looks for pending rows", 1, with(pending, undeferred...), t.lookOrder()...)}
	if available != "" {
		all = append(all, t.index("looks for deferred rows that are due", 1, with(pending, deferred), available, t.names.id))
	}
	if t.hasStatus() {
		since := t.names.claimedAt
		if since == "" {
			since = t.names.updatedAt
		}
		all = append(all, t.index("rows that somebody is processing", 1,
			[]test{{t.names.status, isOneOf([]string{t.cfg.Status.Processing})}}, since))
	}
	if !t.Ordered() {
		return all
	}
	key := t.names.orderingKey
	keyed := test{key, isNotNull}
	// Behind the key and the order's first column few rows are left to sort.
	all = append(all, t.index("the first pending row of an ordering key", 2,
		with(with(unsettled, undeferred...), keyed), append([]string{key}, t.order()...)...))
	if available != "" {
		all = append(all, t.index("deferred rows of an ordering key", 1, with(unsettled, deferred, keyed), key, available, t.names.id))
		if t.lows() {
			all = append(all, t.index("deferred rows of an ordering key that are new", 2, with(unsettled, deferred, keyed), key, t.names.id))
		}
	}
	return all
}

// markTests are those of pending rows, and of rows that stand in front of others of their key.
func (t *Table) markTests() (pending, unsettled []test) {
	if s := t.cfg.Status; t.hasStatus() {
		return []test{{t.names.status, isOneOf([]string{s.Pending})}}, []test{{t.names.status, isOneOf([]string{s.Pending, s.Processing})}}
	}
	pending = []test{{t.names.publishedAt, isNull}}
	if t.names.deadAt != "" {
		pending = append(pending, test{t.names.deadAt, isNull})
	}
	return pending, pending
}

// test is a condition on a column.
type test struct{ column, is string }

const (
	isNull    = " IS NULL"
	isNotNull = " IS NOT NULL"
)

func (t *Table) index(purpose string, leading int, where []test, columns ...string) Index {
	quoted, bare, tests := make([]string, len(columns)), make([]string, len(where)), make([]string, len(where))
	for i, c := range columns {
		quoted[i] = quote(c)
	}
	for i, w := range where {
		bare[i], tests[i] = w.column+w.is, quote(w.column)+w.is
	}
	concurrently := "CONCURRENTLY "
	if t.Partitioned {
		concurrently = "" // PostgreSQL has it for partitions only
	}
	return Index{purpose, columns, leading, bare,
		fmt.Sprintf("CREATE INDEX %sON %s (%s) WHERE %s", concurrently, t.Name, strings.Join(quoted, ", "), strings.Join(tests, " AND "))}
}

// OrderedByKey says that a route keeps an order that is the key's own.
func (t *Table) OrderedByKey() bool { return t.Ordered() && t.order()[0] == t.names.id }
