package relay

import (
	"fmt"
	"time"
)

// Retention is how long settled rows stay; zero is for ever.
func (t *Table) Retention() time.Duration { return time.Duration(t.cfg.Retention) }

// RetirePage is how many rows one statement of a retention deletes.
const RetirePage = 1000

// settledAt is the column by which retention goes, empty where there is none.
func (t *Table) settledAt() string {
	if t.names.publishedAt == "" {
		return t.names.updatedAt
	}
	return t.names.publishedAt
}

// checkRetention wants what retention goes by, and an index of it: each sweep would otherwise read the whole table.
func (t *Table) checkRetention(facts keyFacts) error {
	at := t.settledAt()
	switch {
	case t.Retention() == 0 || t.Own():
		return nil
	case at == "":
		return &TableError{t.Name, "retention: no column published_at or updated_at tells when a row was settled",
			fmt.Sprintf("map one with columns: {published_at: …}, or run: ALTER TABLE %s ADD COLUMN published_at timestamptz", t.Name)}
	case !facts.leading[at]:
		create := "CREATE INDEX CONCURRENTLY"
		if t.Partitioned {
			create = "CREATE INDEX"
		}
		return &TableError{t.Name, fmt.Sprintf("retention: no index begins with %q, so each sweep would read the whole table", at),
			fmt.Sprintf("run: %s ON %s (%s)", create, t.Name, quote(at))}
	}
	return nil
}

// Retire is a statement that deletes up to RetirePage settled rows which are older than so many seconds ($1), the oldest first. Dead
// letters stay until a person decides, and rows that somebody has locked for the next time. The DELETE repeats the condition, as
// a row may be republished at that moment.
func (t *Table) Retire() string {
	at := "o." + escape(quote(t.settledAt()))
	old := "@o.settled AND " + at + " < now() - $1::float8 * interval '1 second'"
	return expander(t).Replace(fmt.Sprintf(`
WITH old AS MATERIALIZED (
	SELECT @o.id AS k FROM @outbox o
	 WHERE %s AND NOT EXISTS (SELECT FROM pgrelay.failures f WHERE f.outbox = @name AND f.row_id = @o.id::text)
	 ORDER BY %s LIMIT %d FOR UPDATE OF o SKIP LOCKED)
DELETE FROM @outbox o USING old WHERE @o.id = old.k AND %[1]s`, old, at, RetirePage))
}
