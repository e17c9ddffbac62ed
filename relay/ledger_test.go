package relay

import (
	"errors"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

// withLedger is toQueue with a ledger.
var withLedger = config.Outbox{Table: toQueue.Table, Routes: toQueue.Routes, Ledger: "pgrelay.processed_events"}

const (
	rearm  = `UPDATE pgrelay.outbox_events SET published_at = NULL WHERE id::text = ANY ($1)`
	events = `SELECT e.id::text FROM pgrelay.outbox_events e JOIN pgrelay.processed_events p ON p.event_id = e.event_id::text ORDER BY e.id`
)

func TestEventInTheLedgerIsStampedAndNotSentWhateverBringsItBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withLedger)
	ids := f.ids(insertEvents, "f", "k", 30)
	f.exec(`INSERT INTO pgrelay.processed_events SELECT event_id::text FROM pgrelay.outbox_events WHERE id::text = ANY ($1)`, []string{ids[0], ids[14], ids[29]})
	f.start()
	f.offer(ids...)
	f.settled(0)
	require.Len(t, f.pubs["fifo"].messages(), 27)
	require.Equal(t, ids, f.ids(events), "what was sent is remembered")

	f.exec(rearm, ids)
	f.offer(ids...)
	f.settled(0)
	more := f.ids(insertEvents, "f", "k", 2)
	f.offer(more...)
	f.settled(0)
	require.Len(t, f.pubs["fifo"].messages(), 29, "the key goes on behind what was not sent")
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
	var recorded dto.Metric
	require.NoError(t, f.relay.metrics.recorded.WithLabelValues(toQueue.Table).Write(&recorded))
	require.EqualValues(t, 33, recorded.Counter.GetValue())
}

func TestLedgerIsWrittenOnlyForWhatIsMarked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withLedger)
	pub := f.pubs["queue"]
	pub.script(func(m *Message) Result {
		if m.Body == "2" {
			return Result{Outcome: OutcomeRejected, Reason: "odd", Detail: "refused"}
		}
		return Result{Outcome: OutcomeDelivered}
	})
	ids := f.inFlight("q", 3)
	f.exec(`UPDATE pgrelay.outbox_events SET headers = '{"v": "2"}' WHERE id::text = $1`, ids[0])
	close(pub.hold)
	f.settled(0)
	require.Equal(t, []string{ids[0], ids[2]}, f.ids(events), "the dead one's event is not there")
	sent := 0
	for _, m := range pub.messages() {
		if m.Body == "1" {
			sent++
		}
	}
	require.Equal(t, 2, sent, "what was changed in flight is not done with by its first delivery")
}

func TestRepublishRefusesWhatTheLedgerWouldKeepBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withLedger)
	f.start()
	table := f.relay.Tables()[0]
	ids := f.ids(insertEvents, "q", nil, 3)
	f.offer(ids...)
	f.settled(0)
	f.exec(`DELETE FROM pgrelay.processed_events WHERE event_id = (SELECT event_id::text FROM pgrelay.outbox_events WHERE id::text = $1)`, ids[2])

	for _, dry := range []bool{true, false} {
		_, err := table.Republish(t.Context(), f.conn, Selection{IDs: ids}, dry)
		var recorded *RecordedError
		require.ErrorAs(t, err, &recorded)
		require.Equal(t, 2, recorded.Rows)
		require.ErrorContains(t, err, "--force")
	}
	f.explain(ids[0]).says(t, StatePublished, "pgrelay republish"+ownFlags+ids[0]+" --force", "in the ledger pgrelay.processed_events at ")
	f.settled(0)
	change, err := table.Republish(t.Context(), f.conn, Selection{IDs: ids[2:]}, false)
	require.NoError(t, err)
	require.Equal(t, 1, change.Rows)
	change, err = table.Republish(t.Context(), f.conn, Selection{IDs: ids[:2], Force: true}, false)
	require.NoError(t, err)
	require.Equal(t, 2, change.Rows)
	f.offer(ids...)
	f.settled(0)
	require.Len(t, f.pubs["queue"].messages(), 6)
	require.Equal(t, ids, f.ids(events), "they are recorded anew")
}

func TestExplainOfARowWhoseEventIsInTheLedger(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withLedger)
	id := f.insert("q", "", "NULL")
	f.exec(`INSERT INTO pgrelay.processed_events SELECT event_id::text FROM pgrelay.outbox_events`)
	f.explain(id).says(t, StateNoLeader, "in the ledger pgrelay.processed_events at ", "stamped and not sent")
	f.start()
	f.explain(id).says(t, StateRecorded, "the next claim stamps it", "pgrelay republish"+ownFlags+id+" --force")
}

func TestLedgerOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Outbox{Table: "public.bare", Ledger: `"My Ledger"`, Routes: []config.Route{{Kind: "*", To: "queue", Body: "{{.id}}"}}},
		`CREATE TABLE public.bare (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), published_at timestamptz)`,
		`CREATE TABLE "My Ledger" (n bigserial, event_id uuid PRIMARY KEY, note text, processed_at timestamptz NOT NULL)`)
	f.start()
	ids := f.ids(`INSERT INTO public.bare SELECT FROM generate_series(1, 2) RETURNING id::text`)
	for range 2 {
		f.offer(ids...)
		f.waitPending(&outboxKind{pending: `SELECT count(*)::text FROM public.bare WHERE published_at IS NULL`}, "0")
		f.exec(`UPDATE public.bare SET published_at = NULL`)
	}
	require.ElementsMatch(t, ids, f.pubs["queue"].bodies())
	require.ElementsMatch(t, ids, f.ids(`SELECT event_id::text FROM "My Ledger" WHERE processed_at <= now()`))
}

func TestLedgerThatCannotServeIsRefusedWithItsCure(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toQueue,
		`CREATE TABLE nothing (n int)`, `CREATE TABLE twice (event_id text, processed_at timestamptz)`,
		`CREATE TABLE number (event_id bigint PRIMARY KEY, processed_at timestamptz)`,
		`CREATE TABLE more (event_id text PRIMARY KEY, processed_at timestamptz, who text NOT NULL)`, `CREATE TABLE "when" (event_id text PRIMARY KEY, processed_at bool)`, `CREATE VIEW seen AS SELECT * FROM more`,
		`CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text, published_at timestamptz)`)
	for name, test := range map[string]struct {
		table, ledger string
		want          []string
	}{
		"missing":                {"", "public.gone", []string{"there is no table public.gone", "CREATE TABLE public.gone (event_id text PRIMARY KEY"}},
		"a view":                 {"", "seen", []string{"there is no table seen"}},
		"without columns":        {"", "nothing", []string{"no column event_id", "no column processed_at", "ALTER TABLE public.nothing ADD COLUMN processed_at"}},
		"not unique":             {"", "twice", []string{"CREATE UNIQUE INDEX CONCURRENTLY ON public.twice (event_id)"}},
		"of another type":        {"", "number", []string{"its event_id is bigint"}},
		"with another time":      {"", `"when"`, []string{"its processed_at is boolean, not a time"}},
		"with a needy column":    {"", "more", []string{"ALTER TABLE public.more ALTER COLUMN \"who\" DROP NOT NULL"}},
		"of rows without events": {"plain", "pgrelay.processed_events", []string{"ALTER TABLE public.plain ADD COLUMN event_id uuid"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Outbox{Table: test.table, Ledger: test.ledger, Routes: []config.Route{{Kind: "*", To: "queue"}}}
			if cfg.Table == "" {
				cfg.Table = toQueue.Table
			}
			_, err := OpenTable(t.Context(), f.conn, cfg, []Sink{{Name: "queue"}})
			var table *TableError
			require.True(t, errors.As(err, &table), err)
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}
