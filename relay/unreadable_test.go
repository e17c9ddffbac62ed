package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

func TestRowForWhichTheUsersSQLFailsIsExplained(t *testing.T) {
	t.Parallel()
	for name, outbox := range map[string]config.Outbox{
		"ready":           {Ready: "10 / o.n > 1"},
		"select":          {Select: "10 / o.n AS share"},
		"select, as kind": {Select: "(10 / o.n)::text AS share", Kind: config.RowKind{Column: "share"}},
		"join":            {Join: "JOIN public.parts p ON p.n = 10 / o.n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outbox.Table, outbox.Routes = "public.shares", []config.Route{{Kind: "*", To: "queue", Body: "{{.n}}"}}
			f := newFixture(t, outbox, `CREATE TABLE shares (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, published_at timestamptz)`,
				`CREATE TABLE parts (n int)`, `INSERT INTO parts VALUES (10)`)
			ids := f.ids(`INSERT INTO shares (n) VALUES (1), (0) RETURNING id::text`)
			f.explain(ids[1]).says(t, StateUnreadable, "Its join, select or ready fails, so it can't be claimed: division by zero (SQLSTATE 22012)", "NULLIF")
			f.explain(ids[0]).says(t, StateNoLeader)
			_, err := f.relay.Tables()[0].Explain(t.Context(), f.conn, "one", Surroundings{})
			require.ErrorContains(t, err, "does not fit its column")
			require.NotContains(t, err.Error(), "fails, so")
		})
	}
}
