package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// slotSync is the first version that keeps a logical slot on standbys too.
const slotSync = 17

func TestPromotedStandbyIsFollowedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, attrs string
		mode        pgtest.StopMode
	}{
		{"after a switchover, by a URL that asks for a primary", "&target_session_attrs=read-write", pgtest.Fast},
		{"after a crash, by a URL that takes any server", "", pgtest.Immediate},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			primary := pgtest.StartServer(t, pgtest.Options{})
			db := primary.NewMigrated(t)
			standby := primary.NewStandby(t, standbySettings(primary.Version))
			// What is committed is on the standby as well, or a crash would lose it.
			db.Exec(t, `ALTER SYSTEM SET synchronous_standby_names = '`+pgtest.StandbyName+`'`)
			db.Exec(t, `SELECT pg_reload_conf()`)
			// The standby first: whoever takes any server gets the wrong one.
			url := fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable", standby.Addr, primary.Addr, db.Name)
			db.URL = url + "&target_session_attrs=read-write"
			w := newWorldOn(t, db, sections{"poller": slowPoller})

			p := w.stream("DATABASE_URL=" + url + c.attrs)
			before := w.insert("q", 200)
			w.settled(0)
			w.replicated(standby)
			l := w.produce()
			w.flows()
			primary.Stop(t, c.mode)
			standby.Promote(t)
			promoted := time.Now()
			w.conn = w.db.Connect(t)
			w.flows()
			w.took("rows flow", promoted)
			pgtest.Eventually(t, patience, func() bool { return len(p.logged("replication stream started")) == 2 }, "the stream starts on the new primary")
			w.flows()
			l.stop()
			w.settled(0)

			created := p.logged("replication slot created")
			if standby.Version >= slotSync {
				require.Len(t, created, 1, "the slot was on the standby")
				require.Equal(t, "true", w.string(`SELECT failover::text FROM pg_replication_slots WHERE `+ownSlot))
			} else {
				require.Len(t, created, 2)
				require.Equal(t, "missing", created[1]["reason"])
			}
			p.stop()
			w.disjoint(before, w.repeats(standardQueue))
		})
	}
}

// standbySettings are what makes a standby keep the primary's failover slots.
func standbySettings(version int) map[string]string {
	if version < slotSync {
		return nil
	}
	return map[string]string{"sync_replication_slots": "on"}
}

// replicated waits until a standby has all that was written up to now, and the relay's slot where it can have it.
func (w *world) replicated(standby *pgtest.Server) {
	w.t.Helper()
	lsn := w.string(`SELECT pg_current_wal_insert_lsn()::text`)
	there := *w
	there.conn = (&pgtest.Database{URL: standby.URL("postgres")}).Connect(w.t)
	there.eventually("true", `SELECT (pg_last_wal_replay_lsn() >= $1::text::pg_lsn)::text`, lsn)
	if standby.Version < slotSync {
		return
	}
	pgtest.Eventually(w.t, patience, func() bool {
		w.exec(`SELECT pg_log_standby_snapshot()`) // moves the slot on, as the server does every 15 s
		return there.string(`SELECT count(*)::text FROM pg_replication_slots WHERE synced AND NOT temporary`) == "1"
	}, "the slot is on the standby")
}
