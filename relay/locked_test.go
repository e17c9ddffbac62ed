package relay

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// refusals notes whether the leader's session pings between two claims that a lock refuses.
type refusals struct {
	mu              sync.Mutex
	refused, unseen int  // claims refused; of them in a row, without a ping before
	pinged          bool // since the last one
}

func (r *refusals) note(sql string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case strings.HasPrefix(sql, "UPDATE pgrelay.leader"):
		r.pinged = r.pinged || err == nil
	case strings.Contains(sql, "INSERT INTO pgrelay.claims") && sqlState(err) == "55P03":
		if r.refused++; !r.pinged {
			r.unseen++
		}
		r.pinged = false
	}
}

func TestManyLockedTablesCostNeitherTheLeadNorAnotherOutbox(t *testing.T) {
	t.Parallel()
	var setup []string
	for n := range 4 {
		setup = append(setup, fmt.Sprintf(`CREATE TABLE public.locked_%d (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb DEFAULT '1', published_at timestamptz)`, n))
	}
	f := newFixture(t, toQueue, setup...)
	cfg := f.relay.cfg
	for n := range setup {
		table, err := OpenTable(t.Context(), f.conn, config.Outbox{Table: fmt.Sprintf("public.locked_%d", n), Routes: everythingToQueue}, []Sink{{Name: "queue"}})
		require.NoError(t, err)
		cfg.Tables = append(cfg.Tables, table)
	}
	cfg.Registerer = prometheus.NewRegistry()
	seen := &refusals{}
	cfg.Conn.Tracer = &tracer{ends: seen.note}
	f.relay = New(cfg)
	f.relay.SetLooker(f.looks)
	f.start()
	owner, err := f.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	for _, table := range cfg.Tables[1:] {
		id := f.one(`INSERT INTO ` + table.Name + ` DEFAULT VALUES RETURNING id::text`)
		_, err = owner.Exec(t.Context(), `LOCK TABLE `+table.Name+` IN ACCESS EXCLUSIVE MODE`)
		require.NoError(t, err)
		require.NoError(t, f.relay.Offer(t.Context(), table, []string{id}))
	}
	for n := 1; ; n++ {
		f.offer(f.ids(insertEvents, "q", nil, 1)...)
		f.pubs["queue"].wait(t, n)
		seen.mu.Lock()
		refused := seen.refused
		seen.mu.Unlock()
		if refused >= 8 {
			break
		}
	}
	f.settled(0)
	require.NoError(t, owner.Commit(t.Context()))
	for _, table := range cfg.Tables[1:] {
		pgtest.Eventually(t, longEnough, func() bool {
			return f.one(`SELECT count(*)::text FROM `+table.Name+` WHERE published_at IS NULL`) == "0"
		}, "%s goes on", table.Name)
	}
	require.NoError(t, f.stop())
	require.LessOrEqual(t, seen.unseen, 1, "the session pings between two claims that wait for a lock")
	require.Equal(t, "1", f.one(`SELECT epoch::text FROM pgrelay.leader`))
}

func TestForeignKeysLockOnARowHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue,
		`CREATE TABLE public.notes (event bigint REFERENCES pgrelay.outbox_events)`)
	ids := f.inFlight("q", 10)
	tx, err := f.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	more := f.ids(insertEvents, "q", nil, 10)
	for _, id := range []string{ids[3], more[3]} { // one on its way, one not claimed yet: each takes a FOR KEY SHARE lock
		_, err = tx.Exec(t.Context(), `INSERT INTO notes VALUES ($1::text::bigint)`, id)
		require.NoError(t, err)
	}
	f.offer(more...)
	close(f.pubs["queue"].hold)
	f.settled(0)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Len(t, f.pubs["queue"].messages(), 20)
}
