package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Counts is how many rows of an outbox are in each state. Each count stops at CountCap, so that it costs
// little however long the backlog is.
type Counts struct {
	Table      string `json:"table"`
	Pending    int    `json:"pending"` // due and not settled; deferred, processing and retrying rows are counted apart
	Deferred   int    `json:"deferred"`
	NotReady   int    `json:"not_ready"` // due, and waiting for ready or for their join to find something
	Unjoined   int    `json:"unjoined"`  // of those, the ones for which the join finds nothing
	Processing int    `json:"processing"`
	Retrying   int    `json:"retrying"`
	Dead       int    `json:"dead"`
	Uncertain  int    `json:"uncertain"`
	// Oldest is the age of the oldest row that is pending, by created_at; zero where there is none or no such column.
	Oldest time.Duration `json:"-"`
	// OldestSeconds is Oldest for JSON.
	OldestSeconds float64 `json:"oldest_seconds"`
}

// CountCap is where a count stops.
const CountCap = 100_000

// Count counts an outbox's rows by state.
func (t *Table) Count(ctx context.Context, conn *pgx.Conn) (Counts, error) {
	c := Counts{Table: t.Name}
	err := conn.QueryRow(ctx, expander(t).Replace(t.countSQL()), CountCap).
		Scan(&c.Pending, &c.Deferred, &c.NotReady, &c.Unjoined, &c.Processing, &c.Retrying, &c.Dead, &c.Uncertain, &c.OldestSeconds)
	if err != nil {
		return c, t.explain(err)
	}
	c.Oldest = time.Duration(c.OldestSeconds * float64(time.Second))
	return c, nil
}

// countSQL counts by the partial indexes. Rows in flight and rows that wait for a retry are pending by their mark; they are few, and
// taken off.
func (t *Table) countSQL() string {
	deferred, oldest := "0", "0"
	if t.names.availableAt != "" {
		deferred = `(SELECT count(*) FROM (SELECT FROM @outbox o WHERE @o.pending AND @o.available > now() LIMIT $1) q)`
	}
	if t.names.createdAt != "" {
		// By the order of looks the first pending row is about the oldest; an exact minimum would read them all.
		oldest = `coalesce((SELECT extract(epoch FROM now() - q.at) FROM (SELECT o.` + escape(quote(t.names.createdAt)) + ` AS at FROM @outbox o
			WHERE @o.pending AND @o.undeferred AND @o.readyexists ORDER BY ` + t.list("o.%s", t.lookOrder()...) + ` LIMIT 1) q), 0)`
	}
	// On a table with a status rows in flight are not pending by their mark, and others may have some in flight as well.
	flying, processing := "flying.n", "flying.n"
	if t.hasStatus() {
		flying, processing = "0", "(SELECT count(*) FROM (SELECT FROM @outbox o WHERE @o.processing LIMIT $1) q)"
	}
	states, unready, unjoined, also := "", "0", "0", ""
	if t.Conditional() {
		states = " @isready AS is_ready, @isjoined AS is_joined"
		unready, unjoined = "count(*) FILTER (WHERE NOT is_ready)", "count(*) FILTER (WHERE NOT is_joined)"
		also = "@maybejoined"
	}
	return `
WITH due AS (SELECT count(*) AS n, ` + unready + ` AS unready, ` + unjoined + ` AS unjoined
	FROM (SELECT` + states + ` FROM @outbox o ` + also + ` WHERE @o.pending AND @o.due LIMIT $1) q),
flying AS (SELECT count(*) AS n FROM pgrelay.claims c CROSS JOIN LATERAL unnest(c.ids) WHERE c.outbox = @name),
failing AS (SELECT count(*) FILTER (WHERE f.dead_at IS NULL AND (f.attempts > 0 OR f.unknowns > 0)) AS retrying,
		count(*) FILTER (WHERE f.dead_at IS NOT NULL AND NOT f.uncertain) AS dead, count(*) FILTER (WHERE f.uncertain) AS uncertain
	FROM (SELECT * FROM pgrelay.failures f WHERE f.outbox = @name LIMIT $1) f)
SELECT greatest(due.n - due.unready - ` + flying + ` - failing.retrying, 0), ` + deferred + `, due.unready, due.unjoined,
       ` + processing + `, failing.retrying, failing.dead, failing.uncertain,
       greatest(` + oldest + `, 0)::float8
  FROM due, flying, failing`
}
