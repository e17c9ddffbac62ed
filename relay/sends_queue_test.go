package relay

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

func TestQueueMessagesThatGoAtMostOnceGoInFullCallsAndNeverTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail)
	pub := f.pubs["queue"]
	var mu sync.Mutex
	tries := map[string]int{}
	pub.script(func(m *Message) Result {
		mu.Lock()
		defer mu.Unlock()
		tries[m.RowID]++
		switch n := len(m.Body); {
		case m.Body[n-1] == '3':
			return result(OutcomeUnknown)
		case m.Body[n-1] == '5' && tries[m.RowID] == 1:
			return result(OutcomeRetry)
		case m.Body[n-1] == '7':
			return result(OutcomeRejected)
		}
		return result(OutcomeDelivered)
	})
	f.start()
	ids := f.ids(insertEvents, "q", nil, 100)
	f.offer(ids...)
	pgtest.Eventually(t, longEnough, func() error {
		if waiting := f.ids(`SELECT row_id FROM pgrelay.failures WHERE next_attempt_at IS NOT NULL`); len(waiting) > 0 {
			f.offer(waiting...)
			return fmt.Errorf("%d wait", len(waiting))
		}
		if n := f.one(`SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL`); n != "0" {
			return fmt.Errorf("%s pending", n)
		}
		return nil
	}, "all are settled")
	require.NoError(t, f.stop()) // what it wrote may be read
	require.Equal(t, "DEAD 10, PUBLISHED 80, UNCERTAIN 10", f.one(`SELECT string_agg(status || ' ' || n, ', ' ORDER BY status)
		FROM (SELECT status, count(*) AS n FROM pgrelay.outbox_event_status GROUP BY 1) s`))
	require.Equal(t, "80 10", f.one(`SELECT count(sent_at) || ' ' || count(*) FILTER (WHERE sent_at IS NULL) FROM pgrelay.notification_sends WHERE recipient = 'queue'`))
	require.Equal(t, "10", f.one(`SELECT count(*)::text FROM pgrelay.failures WHERE uncertain AND reason = 'uncertain' AND attempts = 0`), "no retry, no attempt")
	for id, n := range tries {
		require.LessOrEqual(t, n, 2, id)
	}
	require.Len(t, strings.Split(f.listed(true), ", "), 10)
	require.Less(t, pub.calls, 60, "calls are filled")
}

func TestDestinationThatIsDownKeepsNoClaims(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"mail": "m", "queue": "q"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, toMail)
			f.pubs[name].fault = func([]*Message) *Fault { return &Fault{Reason: "unreachable"} }
			f.start()
			id := f.one(`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ($1, '["ann@x", "bob@x"]') RETURNING id::text`, kind)
			pgtest.Eventually(t, longEnough, func() bool {
				f.offer(id)
				return f.relay.destinations[f.sink(name)].state().reason == "unreachable"
			}, "%s is paused", name)
			f.pubs[name].mu.Lock()
			f.pubs[name].fault = nil
			f.pubs[name].mu.Unlock()
			require.Equal(t, "PUBLISHED", f.ends(id))
			require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`), "it cost nothing")
			require.Equal(t, map[string]int{"mail": 2, "queue": 1}[name], len(f.pubs[name].messages()))
		})
	}
}

// sink is a destination's index.
func (f *fixture) sink(name string) int {
	for i, d := range f.relay.cfg.Destinations {
		if d.Name == name {
			return i
		}
	}
	panic(name)
}

func TestTableOfSendsThatIsLockedStopsWhatNeedsItAndNothingElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail)
	other := f.db.Connect(t)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE pgrelay.notification_sends IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	f.start()
	mail := f.one(insertMail, `["ann@x"]`, 1)
	f.offer(mail)
	pgtest.Eventually(t, longEnough, func() error {
		if s := f.relay.destinations[f.sink("mail")].state(); s.reason != reasonNoClaims {
			return fmt.Errorf("%s: %s", s.reason, s.detail)
		}
		return nil
	}, "mail is paused")
	f.offer(f.ids(insertEvents, "p", nil, 20)...)
	f.pubs["queue"].wait(t, 20)
	require.Empty(t, f.pubs["mail"].messages())
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "PUBLISHED", f.ends(mail))
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`), "it cost nothing")
}

func TestClaimsAreDurableAndOneThatTheTableRefusesHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	outbox := toMail
	outbox.Sends = config.Sends{Table: `"My Sends"`, Columns: config.SendColumns{EventID: "Event", SentAt: "done at"}}
	f := newFixture(t, outbox,
		`CREATE TABLE "My Sends" (n bigserial, "Event" uuid, recipient varchar(10), event_type text, "done at" timestamptz, how text DEFAULT current_setting('synchronous_commit'),
			UNIQUE (recipient, event_type, "Event"), CHECK (recipient <> 'bad@x'))`)
	f.start()
	ids := append(f.ids(insertMail, `["ann@x"]`, 5), f.one(insertMail, `["bad@x", "bob@x"]`, 1), f.one(insertMail, `["much.too.long@x"]`, 1))
	for i, id := range ids {
		f.offer(ids...)
		want := "PUBLISHED"
		if i > 4 {
			want = "DEAD"
		}
		require.Equal(t, want, strings.Fields(f.ends(id))[0])
	}
	require.Contains(t, f.fate(ids[5]), `claim_refused: bad@x (claim_refused: public."My Sends" refuses its claim: `)
	require.Equal(t, "on 6", f.one(`SELECT how || ' ' || count(*) FROM "My Sends" WHERE "done at" IS NOT NULL GROUP BY how`))
	require.Len(t, f.pubs["mail"].messages(), 6)
	require.Equal(t, "off", f.one(`SELECT current_setting('synchronous_commit') FROM (SELECT set_config('synchronous_commit', $1, false)) s`,
		SessionConfig(f.relay.cfg.Conn, "x").RuntimeParams["synchronous_commit"]), "unlike all else")
}

func TestTableOfSendsThatCannotServeIsRefusedWithItsCure(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail,
		`CREATE TABLE nothing (n int)`, `CREATE TABLE twice (event_id text, recipient text, event_type text, sent_at timestamptz, UNIQUE (event_id, recipient))`,
		`CREATE TABLE part (event_id text, recipient text, event_type text, sent_at timestamptz)`, `CREATE UNIQUE INDEX ON part (event_id, recipient, event_type) WHERE sent_at IS NULL`,
		`CREATE TABLE late (event_id text, recipient text, event_type text, sent_at timestamptz, UNIQUE (event_id, recipient, event_type) DEFERRABLE)`,
		`CREATE TABLE number (event_id bigint, recipient int, event_type text, sent_at timestamptz, UNIQUE (event_id, recipient, event_type))`,
		`CREATE TABLE more (event_id text, recipient text, event_type text, sent_at timestamptz, who text NOT NULL, UNIQUE (event_id, recipient, event_type))`,
		`CREATE TABLE never (event_id text, recipient text, event_type text, sent_at timestamptz NOT NULL DEFAULT now(), UNIQUE (event_id, recipient, event_type))`,
		`CREATE TABLE flag (event_id text, recipient text, event_type text, sent_at bool, claimed_at int, last_error json, UNIQUE (event_id, recipient, event_type))`,
		`CREATE TABLE made (event_id text, recipient text, event_type text, sent_at timestamptz GENERATED ALWAYS AS ('2020-01-01'::timestamptz) STORED, UNIQUE (event_id, recipient, event_type))`,
		`CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text, published_at timestamptz)`)
	for name, test := range map[string]struct {
		table string
		sends config.Sends
		want  []string
	}{
		"missing": {sends: config.Sends{Table: "public.gone"}, want: []string{"there is no table public.gone", "CREATE TABLE public.gone (event_id text,"}},
		"without columns": {sends: config.Sends{Table: "nothing"}, want: []string{
			`no column "event_id"`, `ALTER TABLE public.nothing ADD COLUMN "sent_at" timestamptz`, `ADD COLUMN "recipient" text`}},
		"unique on less":                {sends: config.Sends{Table: "twice"}, want: []string{`CREATE UNIQUE INDEX CONCURRENTLY ON public.twice ("event_id", "recipient", "event_type")`}},
		"unique in part":                {sends: config.Sends{Table: "part"}, want: []string{`CREATE UNIQUE INDEX CONCURRENTLY ON public.part`}},
		"unique later":                  {sends: config.Sends{Table: "late"}, want: []string{`CREATE UNIQUE INDEX CONCURRENTLY ON public.late`}},
		"of other types":                {sends: config.Sends{Table: "number"}, want: []string{`its "event_id" is bigint`, `its "recipient" is integer, not text`}},
		"with a needy column":           {sends: config.Sends{Table: "more"}, want: []string{`ALTER TABLE public.more ALTER COLUMN "who" DROP NOT NULL`}},
		"that is always sent":           {sends: config.Sends{Table: "never"}, want: []string{`ALTER TABLE public.never ALTER COLUMN "sent_at" DROP NOT NULL`}},
		"with a flag":                   {sends: config.Sends{Table: "flag"}, want: []string{`its "sent_at" is boolean, not a time`}},
		"of a column that is generated": {sends: config.Sends{Table: "made"}, want: []string{`its column "sent_at" takes no value`}},
		"with another error": {sends: config.Sends{Table: "flag", Columns: config.SendColumns{LastError: "last_error", ClaimedAt: "claimed_at"}}, want: []string{
			`its "last_error" is json, not text`, `its "claimed_at" is integer, not a time`}},
		"mapped to nothing":     {sends: config.Sends{Table: "pgrelay.notification_sends", Columns: config.SendColumns{LastError: "why"}}, want: []string{`columns.last_error: there is no column "why"`}},
		"of rows without event": {table: "plain", sends: toMail.Sends, want: []string{"ALTER TABLE public.plain ADD COLUMN event_id uuid"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Outbox{Table: "pgrelay.outbox_events", Sends: test.sends, Routes: []config.Route{{Kind: "*", To: "queue", Delivery: config.AtMostOnce}}}
			if test.table != "" {
				cfg.Table = test.table
			}
			_, err := OpenTable(t.Context(), f.conn, cfg, []Sink{{Name: "queue"}})
			var table *TableError
			require.ErrorAs(t, err, &table)
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
			cfg.Routes[0].Delivery = config.AtLeastOnce
			_, err = OpenTable(t.Context(), f.conn, cfg, []Sink{{Name: "queue"}})
			require.NoError(t, err, "nobody needs it")
		})
	}
}

func TestClaimIsNotSentBeforeItIsWhateverTheTablesDefault(t *testing.T) {
	t.Parallel()
	outbox := toMail
	outbox.Sends = config.Sends{Table: "hasty"}
	f := newFixture(t, outbox, `CREATE DOMAIN address AS text`, `CREATE TABLE hasty (event_id text, recipient address, event_type text, sent_at timestamptz DEFAULT now(),
		claimed_at int, last_error json, UNIQUE (event_id, recipient, event_type))`)
	f.start()
	f.pubs["mail"].script(func(*Message) Result { return Result{Outcome: OutcomeUnknown} })
	id := f.one(`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('m', '["ann@x"]') RETURNING id::text`)
	f.offer(id)
	f.awaitState(id, StateUncertain)
	require.Equal(t, "ann@x", f.one(`SELECT recipient FROM hasty WHERE sent_at IS NULL`))
}

// TestReleaseWaitsForTheEndOfItsTransaction has a claim whose commit was lost and is still under way: as long as nobody knows whether
// there is a claim, there is none of that send.
func TestReleaseWaitsForTheEndOfItsTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail)
	f.start()
	table := f.relay.Tables()[0].Sends
	other := f.db.Connect(t)
	tx, err := other.BeginTx(t.Context(), pgx.TxOptions{})
	require.NoError(t, err)
	var token string
	require.NoError(t, tx.QueryRow(t.Context(), `INSERT INTO pgrelay.notification_sends (event_id, recipient, event_type) VALUES ('e', 'ann@x', 'm')
		RETURNING pg_current_xact_id()::text`).Scan(&token))
	claim := sendClaim{table: table, sendKey: sendKey{table.Name, "e", "ann@x", "m"}, epoch: 1, token: token, end: endReleased}
	released := make(chan struct{})
	go func() { f.relay.sends.settle([]*sendClaim{&claim}); close(released) }()
	one := func() *sendClaim {
		return &sendClaim{table: table, sendKey: sendKey{table.Name, "f", "ann@x", "m"}, epoch: 1}
	}
	for range 3 { // rounds go by
		c := one()
		f.relay.sends.claim([]*sendClaim{c})
		require.Equal(t, claimTaken, c.state)
		c.end = endReleased
		f.relay.sends.settle([]*sendClaim{c})
	}
	select {
	case <-released:
		t.Fatal("released before its end")
	default:
	}
	require.NoError(t, tx.Commit(t.Context()))
	<-released
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.notification_sends`))
}

func TestSentAtIsCommittedBeforeTheRowIsStamped(t *testing.T) {
	t.Parallel()
	f, id := heldMail(t)
	other := f.db.Connect(t)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM pgrelay.notification_sends FOR UPDATE`)
	require.NoError(t, err)
	close(f.pubs["mail"].hold)
	pgtest.Eventually(t, longEnough, func() error {
		f.relay.sends.mu.Lock()
		defer f.relay.sends.mu.Unlock()
		if f.relay.sends.queues["pgrelay.notification_sends"].quiet.problem() == nil {
			return fmt.Errorf("not yet refused: %s", f.fate(id))
		}
		return nil
	}, "the mark is refused for the lock")
	require.Equal(t, "PROCESSING", f.fate(id))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "PUBLISHED", f.ends(id))
	require.Equal(t, "ann@x sent", f.sends(id))
	require.Len(t, f.pubs["mail"].messages(), 1)
}
