package relay

import (
	"strings"

	"pgrelay/internal/config"
)

// A row's mark says whether it is pending: published_at (and dead_at), or on a table with a status of its own that column alone. The
// mark wins over whatever failures holds. Beside it stand columns that the relay only writes, for the user's own
// dashboards. Every change of a row that the relay makes is one of the SET lists below.

// hasStatus says that the mark is a column with a value for each state. Then a claim writes the row, and what goes back has to be
// written, too.
func (t *Table) hasStatus() bool { return t.names.status != "" }

// pending is what may be claimed.
func (t *Table) pending(alias string) string {
	if t.hasStatus() {
		return t.statusIs(alias, t.cfg.Status.Pending)
	}
	s := alias + "." + quote(t.names.publishedAt) + isNull
	if t.names.deadAt != "" {
		s += " AND " + alias + "." + quote(t.names.deadAt) + isNull
	}
	return s
}

// unsettled is what is pending or in flight, here or with somebody else.
func (t *Table) unsettled(alias string) string {
	if t.hasStatus() {
		return t.statusIs(alias, t.cfg.Status.Pending, t.cfg.Status.Processing)
	}
	return t.pending(alias)
}

// settled is what has been published or is dead. A status that isn't ours to know is neither that nor unsettled.
func (t *Table) settled(alias string) string {
	if t.hasStatus() {
		return t.statusIs(alias, t.cfg.Status.Published, t.cfg.Status.Dead)
	}
	return "NOT (" + t.pending(alias) + ")"
}

// published is what was delivered, and where nothing else marks it what is dead.
func (t *Table) published(alias string) string {
	if t.hasStatus() {
		return t.statusIs(alias, t.cfg.Status.Published)
	}
	return alias + "." + quote(t.names.publishedAt) + isNotNull
}

// processing is what has been claimed, by whomever; only a status tells.
func (t *Table) processing(alias string) string {
	if t.hasStatus() {
		return t.statusIs(alias, t.cfg.Status.Processing)
	}
	return "false"
}

// statusIs compares with untyped literals, which take the column's type and find its indexes.
func (t *Table) statusIs(alias string, values ...string) string {
	return alias + "." + quote(t.names.status) + isOneOf(values)
}

func isOneOf(values []string) string {
	literals := make([]string, len(values))
	for i, v := range values {
		literals[i] = stringLiteral(v)
	}
	if len(values) == 1 {
		return " = " + literals[0]
	}
	return " IN (" + strings.Join(literals, ", ") + ")"
}

// ownDeadMark says that dead rows can be told from published ones by their mark.
func (t *Table) ownDeadMark() bool { return t.hasStatus() || t.names.deadAt != "" }

// Deletes says that rows which were delivered are deleted.
func (t *Table) Deletes() bool { return t.cfg.OnPublished == config.PublishedDelete }

// mark begins the statement that settles rows which were delivered, up to whatever names them.
func (t *Table) mark(rel string) string {
	if t.Deletes() {
		return "DELETE FROM " + rel + " o USING"
	}
	return "UPDATE " + rel + " o SET " + t.delivering() + " FROM"
}

// marked is, of a row that mark returns, whether it has been settled.
func (t *Table) marked() string {
	if t.Deletes() {
		return "true"
	}
	return t.settles()
}

// settles is, of a row as an UPDATE returns it, whether that took it out of the pending set: triggers have the last word.
func (t *Table) settles() string { return "(" + t.unsettled("o") + ") IS NOT TRUE" }

// unwrittenSQL fails, with words for the person who reads the error. They are put together for each row, or the planner would fail itself.
func unwrittenSQL(alias string) string {
	return "('a trigger keeps row ' || " + alias + ".id || ' as it is: it returns NULL, or sets the mark back')::int::text"
}

// assignments is a SET list in the making.
type assignments []assignment

type assignment struct{ column, value string }

// set adds a column where the table has it.
func (a *assignments) set(column, value string) {
	if column != "" {
		*a = append(*a, assignment{column, value})
	}
}

func (a assignments) String() string {
	items := make([]string, len(a))
	for i, one := range a {
		items[i] = quote(one.column) + " = " + one.value
	}
	return strings.Join(items, ", ")
}

// state sets the status and its time.
func (t *Table) state(a *assignments, value string) {
	a.set(t.names.status, stringLiteral(value))
	if t.hasStatus() {
		a.set(t.names.updatedAt, "now()")
	}
}

// claiming is what a claim writes, empty for most tables.
func (t *Table) claiming() string { return t.claimed().String() }

func (t *Table) claimed() (a assignments) {
	t.state(&a, t.cfg.Status.Processing)
	a.set(t.names.claimedAt, "now()")
	return a
}

// delivering is the mark of a row that was delivered.
func (t *Table) delivering() string { return t.delivered().String() }

func (t *Table) delivered() (a assignments) {
	t.state(&a, t.cfg.Status.Published)
	a.set(t.names.publishedAt, "now()")
	a.set(t.names.nextAttemptAt, t.nothing(t.names.nextAttemptAt, "now()"))
	a.set(t.names.lastError, t.nothing(t.names.lastError, "''"))
	return a
}

// failure is what is known of a row that did not go through, as SQL.
type failure struct{ attempts, wait, reason, detail string }

// burying takes a row that is dead out of the pending set.
func (t *Table) burying(f failure) string { return t.buried(f).String() }

func (t *Table) buried(f failure) (a assignments) {
	t.state(&a, t.cfg.Status.Dead)
	if t.ownDeadMark() {
		a.set(t.names.deadAt, "now()")
	} else {
		a.set(t.names.publishedAt, "now()")
	}
	a.set(t.names.attempts, f.attempts)
	a.set(t.names.nextAttemptAt, t.nothing(t.names.nextAttemptAt, "now()"))
	a.set(t.names.lastError, t.lastError(f))
	return a
}

// returning sets a row that was claimed back to pending; what is known of its failure is written where failed is true.
func (t *Table) returning(failed string, f failure) string {
	var a assignments
	t.state(&a, t.cfg.Status.Pending)
	a.set(t.names.claimedAt, t.nothing(t.names.claimedAt, "now()"))
	for _, c := range []struct{ name, value string }{
		{t.names.attempts, f.attempts}, {t.names.nextAttemptAt, "now() + " + f.wait}, {t.names.lastError, t.lastError(f)},
	} {
		if failed != "true" {
			c.value = "CASE WHEN " + failed + " THEN " + c.value + " ELSE o." + quote(c.name) + " END"
		}
		a.set(c.name, c.value)
	}
	return a.String()
}

// back sets a row that was claimed back to pending, as it was.
func (t *Table) back() string {
	var a assignments
	t.state(&a, t.cfg.Status.Pending)
	a.set(t.names.claimedAt, t.nothing(t.names.claimedAt, "now()"))
	return a.String()
}

// unmark sets a settled row back to pending, its history forgotten.
func (t *Table) unmark() string {
	var a assignments
	t.state(&a, t.cfg.Status.Pending)
	a.set(t.names.publishedAt, "NULL")
	a.set(t.names.deadAt, "NULL")
	a.set(t.names.claimedAt, t.nothing(t.names.claimedAt, "now()"))
	a.set(t.names.attempts, "0")
	a.set(t.names.nextAttemptAt, t.nothing(t.names.nextAttemptAt, "now()"))
	a.set(t.names.lastError, t.nothing(t.names.lastError, "''"))
	return a.String()
}

// lastError is a reason with its detail, cut to what the column holds: an explicit cast cuts in silence.
func (t *Table) lastError(f failure) string {
	c, _ := t.column(t.names.lastError)
	return "CAST(concat_ws(': ', " + f.reason + ", nullif(" + f.detail + ", '')) AS " + c.Declared + ")"
}

// nothing is the value of a written column that has nothing to say.
func (t *Table) nothing(column, notNull string) string {
	if c, _ := t.column(column); c.NotNull {
		return notNull
	}
	return "NULL"
}

// Marks are the columns that the relay writes.
func (t *Table) Marks() []string {
	var marks []string
	for _, name := range []string{
		t.names.publishedAt, t.names.deadAt, t.names.status, t.names.updatedAt,
		t.names.claimedAt, t.names.attempts, t.names.nextAttemptAt, t.names.lastError,
	} {
		if name != "" {
			marks = append(marks, name)
		}
	}
	return marks
}

// LeftAlone are columns that show how a row is doing and are not written, as the role may not.
func (t *Table) LeftAlone() []string { return t.leftAlone }

// writesFailures says that a column shows how a row failed.
func (t *Table) writesFailures() bool {
	return t.names.attempts != "" || t.names.nextAttemptAt != "" || t.names.lastError != ""
}

// returned is the part of a stamp that sets back to pending what was claimed and has not been settled, where a row says so.
func (t *Table) returned() string {
	which := "(NOT t.same OR t.outcome IN ('back', 'retry', 'unknown'))"
	if t.claiming() == "" {
		which = "t.same AND t.outcome IN ('retry', 'unknown')"
		if !t.writesFailures() {
			return ""
		}
	}
	return `,
returned AS (
	UPDATE ` + t.relation() + ` o SET ` + t.returning("t.same AND t.outcome <> 'back'", t.stampedFailure()) + ` FROM taken t
	 WHERE o.` + quote(t.names.id) + ` = t.k AND t.pending AND ` + which + ")"
}

// stampedFailure is that of a row t of a stamp.
func (t *Table) stampedFailure() failure {
	return failure{
		attempts: "coalesce((SELECT f.attempts FROM pgrelay.failures f WHERE f.outbox = " + stringLiteral(t.Name) + " AND f.row_id = t.id), 0) + t.charge",
		wait:     "t.delay * interval '1 second'", reason: "t.reason", detail: "t.detail",
	}
}

// crashed is the failure of a row h that a dead process had in flight.
var crashed = failure{attempts: "h.attempts", wait: "interval '0'", reason: "'crashed'", detail: "h.detail"}

// revived is the part of a release that sets rows of a dead process back to pending.
func (t *Table) revived() string {
	if t.claiming() == "" && !t.writesFailures() {
		return ""
	}
	return `,
revived AS (
	UPDATE ` + t.relation() + ` o SET ` + t.returning("true", crashed) + ` FROM hit h
	 WHERE o.` + quote(t.names.id) + " = h.k AND NOT h.dies)"
}

// writing is the part of a claim that writes the rows that it takes.
func (t *Table) writing() string {
	if t.claiming() == "" {
		return ""
	}
	id := "o." + quote(t.names.id)
	return `
wrote AS (UPDATE ` + t.relation() + ` o SET ` + t.claiming() + ` FROM picked p WHERE ` + id + ` = p.id RETURNING ` + id + ` AS id),`
}

// won are the rows that a claim has taken, and version is what a stamp compares: the row's own, or the claim's transaction where that
// has written the row.
func (t *Table) won() (from, version string) {
	if t.claiming() == "" {
		return "picked p", "p.version"
	}
	return "picked p LEFT JOIN wrote w ON w.id = p.id", "CASE WHEN w.id IS NULL THEN (" + unwrittenSQL("p") + ") ELSE pg_current_xact_id()::xid::text END"
}

// relation is the table as SQL.
func (t *Table) relation() string { return quote(t.Schema) + "." + quote(t.Relation) }
