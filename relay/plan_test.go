package relay

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// An old table: what was settled long ago, what waits for its time, and a few fresh rows. Of the key "hot" ten thousand rows were
// settled under a snapshot that is still held, so that no vacuum can take their index entries away.
var oldTable = []string{
	`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, published_at) SELECT 'f', 'k' || n % 100, '1', now() FROM generate_series(1, 200000) n`,
	`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, dead_at) SELECT 'f', 'k' || n % 100, '1', now() FROM generate_series(1, 20000) n`,
	`INSERT INTO pgrelay.failures (outbox, row_id, dead_at) SELECT 'pgrelay.outbox_events', id::text, dead_at FROM pgrelay.outbox_events WHERE dead_at IS NOT NULL`,
	`UPDATE pgrelay.failures SET holds_key = 'k' || row_id, holds_to = 'fifo' WHERE row_id::bigint % 2 = 0`,
	`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, available_at) SELECT 'f', 'k' || n % 100, '1', now() + interval '1 day' FROM generate_series(1, 20000) n`,
	`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) SELECT 'f', 'w' || n, '1' FROM generate_series(1, 2000) n`,
	`INSERT INTO pgrelay.failures (outbox, row_id, attempts, next_attempt_at) SELECT 'pgrelay.outbox_events', id::text, 1, now() + interval '1 day'
	   FROM pgrelay.outbox_events WHERE ordering_key LIKE 'w%'`,
	`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) SELECT 'f', 'hot', '1' FROM generate_series(1, 10000) n`,
	`VACUUM ANALYZE`,
}

const freshRows = `INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) SELECT 'f', $1 || n % $2, '1' FROM generate_series(1, $3::int) n RETURNING id::text`

func TestStatementsTouchLittleOfAnOldTable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, blocking(toQueue), oldTable...)
	s := &stamping{fixture: f, table: f.relay.Tables()[0]}
	holder, err := f.db.Connect(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `SELECT count(*) FROM pgrelay.leader`)
	require.NoError(t, err)
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE ordering_key = 'hot'`)
	low := f.one(`SELECT max(id)::text FROM pgrelay.outbox_events WHERE ordering_key = 'hot'`)
	hot := f.ids(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) SELECT 'f', 'hot', '1' FROM generate_series(1, 20) n RETURNING id::text`)
	fresh := f.ids(freshRows, "k", 100, 50)
	f.exec(`INSERT INTO pgrelay.leader (instance, epoch) VALUES ($1, 1)`, f.relay.instance)

	c := s.session()
	sql := s.table.sql
	rooms := []int32{100, 100}
	claim := func(ids []string, lows ...any) []any {
		return append([]any{ids, f.relay.instance, rooms, int64(1 << 30), false, []string{}, int64(1)}, lows...)
	}
	noLows := []any{[]string{}, []int32{}, []int64{}, []string{}}
	n := len(fresh)
	fill := func(v string) []string { return strings.Split(strings.Repeat(v+",", n-1)+v, ",") }
	stamp := func(outcome string) []any {
		claims := make([]int64, n)
		for i := range claims {
			claims[i] = 1000
		}
		return []any{claims, fresh, fill(f.one(`SELECT xmin::text FROM pgrelay.outbox_events WHERE id::text = $1`, fresh[0])), fill(outcome), make([]float64, n),
			make([]int32, n), make([]bool, n), fill("e"), fill("f"), fill("r"), fill("d"), []int64{1000}, []int64{1}, fill("fifo")}
	}
	f.exec(`INSERT INTO pgrelay.claims (id, outbox, instance, epoch, ids) OVERRIDING SYSTEM VALUE VALUES (1000, 'pgrelay.outbox_events', $1, 1, $2)`, f.relay.instance, fresh)

	for _, p := range []struct {
		name, sql string
		args      []any
		most      int // pages; about twice what it takes
	}{
		{"claim", sql.claim, claim(fresh, noLows...), 1200},
		{"claim behind the line's last settled row", sql.claim, claim(hot, []string{"hot"}, []int32{1}, []int64{number(t, low)}, []string{"now"}), 200},
		{"keys", sql.keys, []any{fresh}, 400},
		{"answers", sql.answers, []any{fresh, make([]*int64, n), rooms}, 800},
		{"stamp delivered", sql.stamp, stamp("delivered"), 2500},
		{"stamp retry", sql.stamp, stamp("retry"), 2500},
		{"stamp dead", sql.stamp, stamp("dead"), 4000},
		{"rescue", sql.rescue, []any{fresh, fill("1"), f.relay.instance, int64(1), fill("1")}, 1000},
		{"release", sql.release, []any{fresh, make([]bool, n), make([]int64, n), 3, make([]int64, n)}, 2500},
		{"line", sql.line, []any{"hot", 1, low}, 100},
		{"next look", sql.looks.next, []any{rooms, []string{low}}, 500},
		{"deferred look", sql.looks.deferred[0], []any{rooms}, 50},
		{"deferred look goes on", sql.looks.deferred[1], []any{rooms, "2000-01-01", "1"}, 50},
		{"retry look", sql.looks.retries[0], []any{rooms}, 50},
		{"retry look goes on", sql.looks.retries[1], []any{rooms, "2000-01-01", "1"}, 50},
		{"orphans", sql.looks.orphans, nil, 100},
		{"next due", sql.looks.nextDue, nil, 50},
	} {
		plan := explained(t, c, p.sql, p.args...)
		require.Empty(t, plan.scanned, "%s reads whole tables:\n%s", p.name, plan.text)
		require.LessOrEqual(t, plan.pages, p.most, "%s:\n%s", p.name, plan.text)
	}
	without := explained(t, c, sql.claim, claim(hot, noLows...)...)
	require.Greater(t, without.pages, 200, "without it the dead entries are walked, so that the bound above means something")
	require.NoError(t, holder.Rollback(t.Context()))
}

func number(t *testing.T, text string) (n int64) {
	t.Helper()
	_, err := fmt.Sscan(text, &n)
	require.NoError(t, err)
	return n
}

// queryPlan is what a statement did.
type queryPlan struct {
	pages   int      // shared buffers
	scanned []string // relations that were read from end to end
	text    string
}

// explained runs a statement as the relay's sessions do, by a generic plan, and takes back what it did.
func explained(t *testing.T, conn *pgx.Conn, sql string, args ...any) (p queryPlan) {
	t.Helper()
	literals := make([]string, len(args))
	for i, a := range args {
		literals[i] = sqlLiteral(t, a)
	}
	execute := "EXECUTE explained"
	if len(args) > 0 {
		execute += "(" + strings.Join(literals, ", ") + ")"
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "PREPARE explained AS "+sql)
		require.NoError(t, err)
		var text string
		for range 2 { // the first fills the session's caches of the catalog
			_, err := tx.Exec(t.Context(), "SAVEPOINT s")
			require.NoError(t, err)
			require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+execute).Scan(&text))
			_, err = tx.Exec(t.Context(), "ROLLBACK TO s")
			require.NoError(t, err)
		}
		var plans []struct{ Plan planNode }
		require.NoError(t, json.Unmarshal([]byte(text), &plans))
		plans[0].Plan.add(&p, true)
		p.text = text
		_, err = tx.Exec(t.Context(), "DEALLOCATE explained")
		return err
	}))
	return p
}

type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	CTE      string     `json:"Subplan Name"`
	Hit      int        `json:"Shared Hit Blocks"`
	Read     int        `json:"Shared Read Blocks"`
	Plans    []planNode `json:"Plans"`
}

// add counts the nodes that count for themselves: the top, and CTEs that change something, which run after it.
func (n planNode) add(p *queryPlan, top bool) {
	if top || n.Type == "ModifyTable" && n.CTE != "" {
		p.pages += n.Hit + n.Read
	}
	if n.Type == "Seq Scan" && n.Relation != "leader" { // it has one row
		p.scanned = append(p.scanned, n.Relation)
	}
	for _, child := range n.Plans {
		child.add(p, false)
	}
}

func sqlLiteral(t *testing.T, v any) string {
	t.Helper()
	switch v := v.(type) {
	case string:
		return "'" + v + "'"
	case uuid.UUID:
		return "'" + v.String() + "'"
	case []*int64:
		return "array_fill(NULL::bigint, '{" + fmt.Sprint(len(v)) + "}')"
	case []string, []int32, []int64, []float64, []bool:
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return "'{" + strings.Trim(string(text), "[]") + "}'"
	default:
		return fmt.Sprint(v)
	}
}
