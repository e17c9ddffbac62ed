package relay

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

func TestStatementsTouchLittleOfATableWithAStatusThatHasTheIndexesAdvised(t *testing.T) {
	t.Parallel()
	for name, typ := range map[string]string{"text": "text", "enum": "public.stage", "varchar": "varchar(20)"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outbox := config.Outbox{Table: "public.staged", Status: ownStatus, Retention: config.Duration(1), Routes: []config.Route{{Kind: "*", To: "fifo"}}}
			f := newFixture(t, outbox, `CREATE TYPE public.stage AS ENUM ('PENDING', 'PROCESSING', 'PUBLISHED', 'FAILED')`,
				`CREATE TABLE public.staged (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid UNIQUE DEFAULT gen_random_uuid(), ordering_key text, payload jsonb DEFAULT '1',
					available_at timestamptz, status `+typ+` DEFAULT 'PENDING', claimed_at timestamptz, published_at timestamptz)`,
				`CREATE INDEX ON public.staged (published_at)`,
				`INSERT INTO public.staged (ordering_key, status, claimed_at, published_at) SELECT 'k' || n % 100, 'PUBLISHED', now(), now() + interval '1 h' FROM generate_series(1, 30000) n`,
				`INSERT INTO public.staged (ordering_key) SELECT 'w' || n FROM generate_series(1, 2000) n`,
				`INSERT INTO public.staged (ordering_key, status, claimed_at) SELECT 'p' || n, 'PROCESSING', now() FROM generate_series(1, 20) n`)
			for _, index := range f.relay.Tables()[0].Indexes() {
				f.exec(index.DDL)
			}
			f.exec(`VACUUM ANALYZE`)
			s := &stamping{fixture: f, table: f.relay.Tables()[0]}
			c, sql := s.session(), s.table.sql
			var fresh []string
			for range 20 {
				fresh = append(fresh, f.one(`INSERT INTO staged (ordering_key) VALUES ('k1') RETURNING id::text`))
			}
			rooms := []int32{100, 100}
			fill := func(v string) []string { return slices.Repeat([]string{v}, len(fresh)) }
			for _, p := range []struct {
				name, sql string
				args      []any
				most      int // pages; about twice what it takes
			}{
				{"claim", sql.claim, []any{fresh, f.relay.instance, rooms, int64(1 << 30), false, []string{}, int64(1), []string{}, []int32{}, []int64{}, []string{}}, 1500},
				{"answers", sql.answers, []any{fresh, make([]*int64, len(fresh)), rooms}, 400},
				{"rescue", sql.rescue, []any{fresh, fill("1"), f.relay.instance, int64(1), fill("1")}, 400},
				{"release", sql.release, []any{fresh, make([]bool, len(fresh)), make([]int64, len(fresh)), 3, make([]int64, len(fresh))}, 1500},
				{"give up", sql.giveUp, []any{fresh}, 200},
				{"take back", sql.takeBack, []any{"60"}, 100},
				{"line", sql.line, []any{"k1", 1, "1"}, 100},
				{"next look", sql.looks.next, []any{rooms, []string{"32000"}}, 200},
				{"deferred look", sql.looks.deferred[0], []any{rooms}, 50},
				{"orphans", sql.looks.orphans, nil, 50},
				{"next due", sql.looks.nextDue, nil, 50},
				{"retention", s.table.Retire(), []any{"3600"}, 50},
			} {
				plan := explained(t, c, p.sql, p.args...)
				plan.scanned = slices.DeleteFunc(plan.scanned, func(relation string) bool { return relation == "claims" }) // it has one row for each batch in flight
				require.Empty(t, plan.scanned, "%s reads whole tables:\n%s", p.name, plan.text)
				require.LessOrEqual(t, plan.pages, p.most, "%s:\n%s", p.name, plan.text)
			}
		})
	}
}
