package relay

import (
	"fmt"
	"strings"
)

// newLooks builds the poller's statements. $1 is always the rooms of the destinations: rows of a destination that
// takes none, of a route that is paused and of a line that a dead row holds are left out, so that they neither churn nor starve others. Rows with a waiting
// failures row come by their own time, from retries. Blind looks ask nothing of join, select and ready, which may fail for a row, and leave
// out nothing: the claim judges each row for itself.
func newLooks(t *Table, x *strings.Replacer, blind bool) looks {
	beside, going := " @o.routed", mayGo
	if blind {
		beside, going = "", "$1::int[] IS NOT NULL"
	}
	top := "NULL"
	if t.KeyGivesOrder() {
		top = "(SELECT max(@o.id)::text FROM @outbox o)"
	}
	order := t.lookOrder()
	look := func(behind string) string {
		return x.Replace(`
SELECT q.id, NULL::bigint, NULL::bigint, q.at FROM (
SELECT @o.id::text AS id, ARRAY[` + t.list("o.%s::text", order...) + `] AS at FROM @outbox o` + beside + `
 WHERE @o.pending AND @o.undeferred AND ` + going + behind + `
   AND NOT EXISTS (SELECT FROM pgrelay.failures f WHERE f.outbox = @name AND f.row_id = @o.id::text AND f.dead_at IS NULL)
 ORDER BY ` + t.list("o.%s", order...) + ` LIMIT ` + fmt.Sprint(LookSize) + `) q
 UNION ALL
SELECT ` + top + `, pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint, NULL FROM pg_current_snapshot() s`)
	}
	var deferred [2]string
	nextDeferred := "NULL::timestamptz"
	if t.names.availableAt != "" {
		deferred = paged(x, `
SELECT @o.id::text, @o.available::text FROM @outbox o`+beside+`
 WHERE @o.pending AND @o.available <= now()%s AND `+going+`
   AND NOT EXISTS (SELECT FROM pgrelay.failures f WHERE f.outbox = @name AND f.row_id = @o.id::text AND f.dead_at IS NULL)
 ORDER BY @o.available, @o.id LIMIT `+fmt.Sprint(LookSize), "(@o.available, @o.id) > ($2::text::timestamptz, $3::text::@keytype)")
		nextDeferred = `(SELECT min(@o.available) FROM @outbox o WHERE @o.pending AND @o.available > now() AND @o.available < 'infinity')`
	}
	return looks{
		first:    look(""),
		next:     look(" AND " + t.behind(order)),
		deferred: deferred,
		retries: paged(x, `
SELECT f.row_id, f.next_attempt_at::text FROM pgrelay.failures f JOIN @outbox o ON @o.id = f.row_id::@keytype`+beside+`
 WHERE f.outbox = @name AND f.dead_at IS NULL AND f.next_attempt_at <= now()%s AND @o.pending AND @o.due AND `+going+`
 ORDER BY f.next_attempt_at, f.row_id LIMIT `+fmt.Sprint(LookSize), "(f.next_attempt_at, f.row_id) > ($2::text::timestamptz, $3::text)"),
		orphans: x.Replace(`
DELETE FROM pgrelay.failures f
 WHERE f.outbox = @name AND f.row_id = ANY (ARRAY(
       SELECT f.row_id FROM pgrelay.failures f
        WHERE f.outbox = @name AND f.dead_at IS NULL AND f.next_attempt_at <= now()
          AND NOT EXISTS (SELECT FROM @outbox o WHERE @o.id = f.row_id::@keytype AND @o.unsettled) LIMIT ` + fmt.Sprint(LookSize) + `))
   AND f.dead_at IS NULL AND f.next_attempt_at <= now()
   AND NOT EXISTS (SELECT FROM @outbox o WHERE @o.id = f.row_id::@keytype AND @o.unsettled)`),
		nextDue: x.Replace(`
SELECT extract(epoch FROM least(
       (SELECT min(f.next_attempt_at) FROM pgrelay.failures f WHERE f.outbox = @name AND f.dead_at IS NULL AND f.next_attempt_at > now()),
       ` + nextDeferred + `) - now())::float8`),
	}
}

// mayGo leaves out what would not be taken. $1 rooms.
const mayGo = `coalesce(($1::int[])[dt.dest + 1], 1) > 0 AND coalesce(($1::int[])[@routeroom + rt.route], 1) > 0 AND @o.holder IS NULL@ready`

// lookOrder is the order of looks: that of order_by, unless a NULL could hide a row from one that goes on behind another.
func (t *Table) lookOrder() []string {
	for _, name := range t.order() {
		if c, _ := t.column(name); !c.NotNull {
			return []string{t.names.id}
		}
	}
	return t.order()
}

// behind asks for what is behind a place in the order of looks.
func (t *Table) behind(order []string) string {
	place := make([]string, len(order))
	for i, name := range order {
		c, _ := t.column(name)
		place[i] = fmt.Sprintf("($2::text[])[%d]::%s", i+1, escape(widest(c.Type)))
	}
	return fmt.Sprintf("(%s) > (%s)", t.list("o.%s", order...), strings.Join(place, ", "))
}

// paged makes of a look with a place for a further condition (%s) its first page and the pages behind a row.
func paged(x *strings.Replacer, look, behind string) [2]string {
	return [2]string{x.Replace(fmt.Sprintf(look, "")), x.Replace(fmt.Sprintf(look, " AND "+behind))}
}

// LookSize is the most ids that one look brings. It is a literal in the statements: for an unknown limit the planner
// expects a tenth of the table and compiles the plan (measured: 10 ms for 0.2).
const LookSize = 500

// The poller's statements, by what they look for. Each takes the rooms first.

// Blind is the table as looks have it that ask nothing of join, select and ready: for while these fail for a row, which would keep looks
// from finding any. It is nil where there are none.
func (t *Table) Blind() *Table {
	if t.plain() {
		return nil
	}
	blind := *t
	blind.sql.looks = newLooks(t, expander(t), true)
	return &blind
}

// FirstLook finds pending rows from the beginning of the table's order: $1 rooms. Each has its place in that order, as texts. The
// last row has, beside the table's highest key where that means anything, xmin and xmax of the snapshot in which it
// looked; they are NULL in the others.
func (t *Table) FirstLook() string { return t.sql.looks.first }

// NextLook is the same behind a place: $1 rooms, $2 the place. Where KeyGivesOrder, a place is the key alone.
func (t *Table) NextLook() string { return t.sql.looks.next }

// DeferredLook finds rows whose producer's time has come, with that time: $1 rooms. The second statement goes on behind a row: $2 its
// time, $3 its key. Both are empty where the table has no such column.
func (t *Table) DeferredLook() [2]string { return t.sql.looks.deferred }

// RetryLook finds rows whose retry, republish or release is due in the same way.
func (t *Table) RetryLook() [2]string { return t.sql.looks.retries }

// OrphanedFailures deletes waiting failures whose row is gone or settled. It has to run in a REPEATABLE READ transaction,
// so that a republish at the same moment makes it fail with 40001 and lose nothing.
func (t *Table) OrphanedFailures() string { return t.sql.looks.orphans }

// NextDue gives the seconds until the next retry or deferred row is due, NULL if none waits.
func (t *Table) NextDue() string { return t.sql.looks.nextDue }
