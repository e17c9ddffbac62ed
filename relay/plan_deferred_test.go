package relay

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// TestProbeOfADeferredKeyStartsBehindWhatIsSettled holds a snapshot while a hundred thousand deferred rows of a key are settled, so that
// their index entries stay, and claims a row behind them.
func TestProbeOfADeferredKeyStartsBehindWhatIsSettled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	s := &stamping{fixture: f, table: f.relay.Tables()[0]}
	f.exec(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, available_at)
		SELECT 'f', CASE WHEN n <= 100000 THEN 'hot' ELSE 'k' || n % 1000 END, '1', now() - n * interval '1 ms' FROM generate_series(1, 120000) n`)
	f.exec(`VACUUM ANALYZE pgrelay.outbox_events`)
	late := f.insert("f", "hot", "now() + interval '1 hour'") // becomes due
	holder, err := f.db.Connect(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `SELECT count(*) FROM pgrelay.leader`)
	require.NoError(t, err)
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE ordering_key = 'hot' AND available_at < now()`)
	low := f.ids(insertEvents, "f", "hot", 1)[0] // was settled last, claimed now
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE id::text = $1`, low)
	claimed := f.one(`SELECT now()::text`)

	c := s.session()
	claim := func(id string, lows ...any) []any {
		return append([]any{[]string{id}, f.relay.instance, []int32{100, 100}, int64(1 << 30), false, []string{}, int64(1)}, lows...)
	}
	known := []any{[]string{"hot"}, []int32{1}, []int64{number(t, low)}, []string{claimed}}
	goes := func(id string) bool {
		t.Helper()
		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		tag, err := tx.Exec(t.Context(), s.table.sql.claim, claim(id, known...)...)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(t.Context()))
		return tag.RowsAffected() == 1
	}

	next := f.insert("f", "hot", "NULL")
	for name, arg := range map[string]string{"a new row": next, "a row that came due": late} {
		if arg == late {
			f.exec(`UPDATE pgrelay.outbox_events SET available_at = clock_timestamp() WHERE id::text = $1`, late)
		}
		plan := explained(t, c, s.table.sql.claim, claim(arg, known...)...)
		require.Empty(t, plan.scanned)
		require.LessOrEqual(t, plan.pages, 150, "%s:\n%s", name, plan.text)
		f.exec(`UPDATE pgrelay.outbox_events SET available_at = now() + interval '1 hour' WHERE id::text = $1`, late)
	}
	without := explained(t, c, s.table.sql.claim, claim(next, []string{}, []int32{}, []int64{}, []string{})...)
	require.Greater(t, without.pages, 1000, "without it the dead entries are walked, so that the bound above means something")

	// What holds a line is found all the same.
	require.True(t, goes(next))
	f.exec(`UPDATE pgrelay.outbox_events SET available_at = clock_timestamp() WHERE id::text = $1`, late)
	require.False(t, goes(next), "one that was older than what was settled, and came due since")
	require.True(t, goes(late))
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE id::text = $1`, late)
	past := f.insert("f", "hot", "now() - interval '1 day'")
	last := f.insert("f", "hot", "NULL")
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = now() WHERE id::text = $1`, next)
	require.False(t, goes(last), "one that is new, and was due before it was inserted")
	require.True(t, goes(past))
	f.exec(`UPDATE pgrelay.outbox_events SET published_at = NULL WHERE id::text = $1`, low)
	require.True(t, goes(low))
	require.NoError(t, holder.Rollback(t.Context()))
}
