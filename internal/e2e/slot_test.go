package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

const ownSlot = `slot_name = 'pgrelay_' || current_database()`

func TestSlotOrPublicationThatIsDroppedIsMadeAgainAndNothingIsLost(t *testing.T) {
	t.Parallel()
	for _, dropped := range []struct {
		name string
		drop func(w *world)
	}{
		{"slot", func(w *world) {
			pgtest.Eventually(w.t, patience, func() error {
				w.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE ` + ownSlot + ` AND active_pid IS NOT NULL`)
				_, err := w.conn.Exec(context.Background(), `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE `+ownSlot)
				return err
			}, "the slot is dropped")
		}},
		{"publication", func(w *world) { w.exec(`DROP PUBLICATION pgrelay`) }},
		{"table of the publication", func(w *world) { w.exec(`ALTER PUBLICATION pgrelay DROP TABLE pgrelay.outbox_events`) }},
	} {
		t.Run(dropped.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sections{"poller": slowPoller})
			p := w.start()
			p.says("replication stream started")
			l := w.produce()
			w.flows()
			began := time.Now()
			dropped.drop(w)
			// Every 30 s the publication is looked at.
			pgtest.Eventually(t, 2*patience, func() bool { return len(p.logged("replication stream started")) > 1 }, "the stream starts again")
			w.flows()
			w.took(dropped.name+" dropped: rows flow by the stream", began)
			l.stop()
			w.settled(0)
			found := p.gauges("pgrelay_poller_ids_total")
			w.insert("q", 10)
			w.settled(0)
			require.Equal(t, found, p.gauges("pgrelay_poller_ids_total"), "the stream brings nothing")
			p.stop()
			require.Empty(t, w.repeats(standardQueue))
		})
	}
}

func TestSlotThatSomebodyElseReadsIsLeftAloneAndThePollerRelays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": "{interval: 100ms}"})
	first := w.start()
	first.says("replication stream started")
	first.stop()

	thief, err := pgconn.Connect(t.Context(), w.db.URL+"&replication=database&application_name=thief")
	require.NoError(t, err)
	t.Cleanup(func() { _ = thief.Close(context.Background()) })
	err = pglogrepl.StartReplication(t.Context(), thief, "pgrelay_"+w.db.Name, 0, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication, PluginArgs: []string{"proto_version '1'", "publication_names 'pgrelay'"},
	})
	require.NoError(t, err)

	p := w.start()
	said := p.says("no replication stream: rows are found by polling; trying again")
	require.Equal(t, "slot_held", said["reason"])
	for _, part := range []string{"pgrelay_" + w.db.Name, "thief", "127.0.0.1"} {
		require.Contains(t, said["error"], part)
	}
	w.insert("q", 100)
	w.settled(0)
	require.Equal(t, "1", w.string(`SELECT count(*) FROM pg_replication_slots WHERE database = current_database()`), "no second slot")
	require.NoError(t, thief.Close(t.Context()))
	p.says("replication stream started")
	p.stop()
	require.Len(t, w.sqs.Messages(standardQueue), 100)
}

func TestTableThatIsLockedOrAlteredWaitsWhileAnotherGoesOn(t *testing.T) {
	t.Parallel()
	// A transaction that is open for long would hold up the making of slots next door.
	server := pgtest.StartServer(t, pgtest.Options{})
	w := newWorldOn(t, server.NewMigrated(t), sections{
		"poller":   "{interval: 200ms}",
		"outboxes": "[{table: orders, routes: [{kind: '*', to: fifo}]}, {table: pgrelay.outbox_events, routes: " + routes + "}]",
	})
	const columns = ` (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
		event_type text NOT NULL DEFAULT 'order', payload jsonb NOT NULL DEFAULT '1', published_at timestamptz)`
	w.exec(`CREATE TABLE orders` + columns)
	p := w.start()
	p.says("replication stream started")
	const insert = `INSERT INTO orders SELECT FROM generate_series(1, 20)`
	w.exec(insert)
	w.arrive(fifoQueue, 20)

	owner := w.db.Connect(t)
	w.exec(insert)
	tx, err := owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE orders IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), insert)
	require.NoError(t, err)
	for n := 20; len(p.logged("outbox is left alone for a while: its table refuses the relay's statement"))+len(p.logged("looking for rows fails; trying again")) == 0; n += 20 {
		w.insert("q", 20)
		w.arrive(standardQueue, n)
	}
	before := w.sqs.Count(standardQueue)
	w.insert("q", 20)
	w.arrive(standardQueue, before+20)
	_, err = tx.Exec(t.Context(), `ALTER TABLE orders ADD COLUMN note text NOT NULL DEFAULT 'none'`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	w.arrive(fifoQueue, 60)
	const pending = `SELECT count(*) FROM orders WHERE published_at IS NULL`
	w.eventually("0", pending) // the next changes every row, and a row that is changed in flight goes again

	w.exec(`ALTER TABLE orders ADD COLUMN more int DEFAULT 1; ALTER TABLE orders DROP COLUMN note; ALTER TABLE orders ALTER COLUMN payload TYPE text`)
	w.exec(insert)
	w.arrive(fifoQueue, 80)
	w.eventually("0", pending)
	p.stop()
	require.ElementsMatch(t, w.strings(`SELECT event_id::text FROM orders`), eventIDs(w.sqs.Messages(fifoQueue)))
	require.NotContains(t, strings.Join(bodies(w.sqs.Messages(fifoQueue)), ""), "none")
}

func TestTableThatIsLockedAtTheStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	owner, err := w.db.Connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = owner.Exec(t.Context(), `LOCK TABLE pgrelay.outbox_events IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	p := w.launch(nil, "run")
	require.Contains(t, p.says("the tables can't be looked at now; trying again")["error"], "lock timeout")
	require.NoError(t, owner.Commit(t.Context()))
	p.says("leading")
	w.insert("q", 20)
	w.settled(0)
	p.stop()
	require.Empty(t, w.repeats(standardQueue))
}
