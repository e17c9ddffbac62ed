package relay

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// inFlight has rows claimed and their calls on the wire, which end when the recorder's hold is closed.
func (f *fixture) inFlight(kind string, n int) []string {
	f.t.Helper()
	f.pubs["queue"].hold = make(chan struct{})
	f.start()
	ids := f.ids(insertEvents, kind, nil, n)
	f.offer(ids...)
	pgtest.Eventually(f.t, longEnough, func() bool {
		return f.one(`SELECT coalesce(sum(cardinality(ids)), 0)::text FROM pgrelay.claims`) == fmt.Sprint(n)
	}, "rows are claimed")
	pgtest.Eventually(f.t, longEnough, func() bool { return f.relay.destinations[0].state().waiting == 0 }, "rows are on the wire")
	return ids
}

const endSessions = `SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`

func TestRowsInFlightAreStampedWhenTheSameInstanceLeadsAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.inFlight("q", 10)
	require.Equal(t, "1", f.one(endSessions, "pgrelay leader"))
	pgtest.Eventually(t, longEnough, func() bool { return f.one(`SELECT epoch::text FROM pgrelay.leader`) == "2" && f.relay.Leads() }, "it leads again")
	f.offer(f.ids(`SELECT id::text FROM pgrelay.outbox_events`)...)
	close(f.pubs["queue"].hold)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 10, "nothing was sent twice")
	require.NoError(t, f.stop())
}

func TestStampsAreRefusedOnceAnotherInstanceHasLed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.inFlight("q", 10)
	other := f.db.Connect(t)
	got := make(chan error, 1)
	go func() { // waits for the lock, and so has it before anybody who tries
		_, err := other.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, advisoryLock)
		got <- err
	}()
	pgtest.Eventually(t, longEnough, func() bool {
		return f.one(`SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == "1"
	}, "the other waits")
	require.Equal(t, "1", f.one(endSessions, "pgrelay leader"))
	require.NoError(t, <-got)
	for _, sql := range []string{`UPDATE pgrelay.leader SET instance = gen_random_uuid(), epoch = epoch + 1, seen_at = clock_timestamp()`, `DELETE FROM pgrelay.claims`} {
		_, err := other.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	close(f.pubs["queue"].hold)
	pgtest.Eventually(t, longEnough, func() bool { rows, _ := f.relay.flights.inFlight(); return rows == 0 }, "the refused rows are let go")
	require.Equal(t, "10", f.one(`SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NULL`))
	require.False(t, f.relay.Leads())
	_, err := other.Exec(t.Context(), `SELECT pg_advisory_unlock($1)`, advisoryLock)
	require.NoError(t, err)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 20, "each was sent once more, as nobody could know")
}

func TestLostRepliesOfStampsNeitherLoseNorRepeat(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	f.start()
	ids := f.ids(insertEvents, "q", nil, 3000)
	killer := f.db.Connect(t)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- endStamps(t.Context(), killer, stop) }()
	f.offer(ids...)
	f.pubs["queue"].wait(t, 3000)
	close(stop)
	require.NoError(t, <-stopped)
	f.settled(0)
	seen := map[string]bool{}
	for _, m := range f.pubs["queue"].messages() {
		require.False(t, seen[m.RowID], m.RowID)
		seen[m.RowID] = true
	}
	require.Len(t, seen, 3000)
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
}

// endStamps ends the stamp session while it works on a statement, so that the reply is what gets lost. After twenty times it lets it
// be: on a slow machine no stamp would ever end.
func endStamps(ctx context.Context, killer *pgx.Conn, stop <-chan struct{}) error {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for ended := int64(0); ended < 20; {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		tag, err := killer.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'pgrelay stamp' AND state = 'active' AND datname = current_database() AND random() < 0.5`)
		if err != nil {
			return err
		}
		ended += tag.RowsAffected()
	}
	return nil
}

func TestHealthyHolderOfTheLockIsNotEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue)
	holder := f.db.Connect(t)
	_, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, advisoryLock)
	require.NoError(t, err)
	f.exec(`INSERT INTO pgrelay.leader (instance, epoch, seen_at) VALUES ($1, 1, now() - interval '1 minute')`, uuid.New())
	pid, err := endDeadHolder(t.Context(), f.conn)
	require.NoError(t, err)
	require.Zero(t, pid, "its session has just been used")
	require.NoError(t, holder.Ping(t.Context()))
	f.exec(`UPDATE pgrelay.leader SET seen_at = now() + interval '1 minute'`)
	_, err = endDeadHolder(t.Context(), f.conn)
	require.NoError(t, err)
	require.NoError(t, holder.Ping(t.Context()), "the leader row is young")
}
