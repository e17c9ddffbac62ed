package relay

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// Triggers may keep what the relay writes from being written, without an error.

const swallowing = `CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	IF OLD.body <> 'kept' THEN RETURN coalesce(NEW, OLD); END IF; %s END$$`

func TestRowThatATriggerKeepsAsItIsIsNotSentAgainAndAgain(t *testing.T) {
	t.Parallel()
	routes := []config.Route{{Kind: "*", To: "queue", Body: "{{.body}}"}}
	for name, c := range map[string]struct {
		outbox  config.Outbox
		on      string // what the trigger is before
		instead string // what it does
	}{
		"the update":   {config.Outbox{Routes: routes}, "UPDATE", "RETURN NULL;"},
		"the mark":     {config.Outbox{Routes: routes}, "UPDATE", "NEW.published_at = NULL; RETURN NEW;"},
		"the deletion": {config.Outbox{Routes: routes, OnPublished: config.PublishedDelete}, "DELETE", "RETURN NULL;"},
		"the death":    {config.Outbox{Routes: []config.Route{{Kind: "*", To: "queue", Body: `{{if eq .body "kept"}}"refused"{{else}}{{.body}}{{end}}`}}}, "UPDATE", "RETURN NULL;"},
		"the drop": {config.Outbox{OnMalformed: config.MalformedStamp, Set: "body = body || '!'",
			Routes: []config.Route{{Kind: "*", To: "queue", Body: `{{if eq .body "kept"}}"refused"{{else}}{{.body}}{{end}}`}}}, "UPDATE", "RETURN NULL;"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.outbox.Table = "public.guarded"
			f := newFixture(t, c.outbox,
				`CREATE TABLE guarded (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, published_at timestamptz)`,
				fmt.Sprintf(swallowing, c.instead), `CREATE TRIGGER swallow BEFORE `+c.on+` ON guarded FOR EACH ROW EXECUTE FUNCTION swallow()`)
			f.start()
			ids := f.ids(`INSERT INTO guarded (body) VALUES ('a'), ('kept'), ('b') RETURNING id::text`)
			f.offer(ids...)
			left := `SELECT coalesce(string_agg(id::text, ' '), '') FROM guarded WHERE published_at IS NULL`
			pgtest.Eventually(t, longEnough, func() bool { return f.one(left) == ids[1] }, "the others are settled")
			for range 3 { // its id is not taken while it is in flight, whoever offers it; what comes behind it is
				f.offer(ids[1])
				more := f.one(`INSERT INTO guarded (body) VALUES ('c') RETURNING id::text`)
				f.offer(more)
				pgtest.Eventually(t, longEnough, func() bool { return f.one(left) == ids[1] }, "one more is settled")
			}
			require.Equal(t, "{"+ids[1]+"}", f.one(`SELECT string_agg(ids::text, ' ') FROM pgrelay.claims`), "it stays claimed")
			sent := 0
			for _, body := range f.pubs["queue"].bodies() {
				if body == "kept" {
					sent++
				}
			}
			require.LessOrEqual(t, sent, 1)

			f.exec(`DROP TRIGGER swallow ON guarded`)
			pgtest.Eventually(t, longEnough, func() bool { return f.one(left) == "" && f.one(`SELECT count(*)::text FROM pgrelay.claims`) == "0" }, "it is settled")
			require.LessOrEqual(t, len(f.pubs["queue"].bodies()), 6)
		})
	}
}

func TestTableThatKeepsAllItsRowsAsTheyAreIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Outbox{Table: "public.guarded", Routes: []config.Route{{Kind: "*", To: "queue", Body: "{{.body}}"}}},
		`CREATE TABLE guarded (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, published_at timestamptz)`,
		fmt.Sprintf(swallowing, "RETURN NULL;"), `CREATE TRIGGER swallow BEFORE UPDATE ON guarded FOR EACH ROW EXECUTE FUNCTION swallow()`)
	f.start()
	f.offer(f.ids(`INSERT INTO guarded (body) SELECT 'kept' FROM generate_series(1, 50) RETURNING id::text`)...)
	f.pubs["queue"].wait(t, 50)
	pgtest.Eventually(t, longEnough, func() bool {
		return f.relay.State().Outboxes[0].Problem != ""
	}, "the table is the problem")
	require.Contains(t, f.relay.State().Outboxes[0].Problem, "a trigger keeps row")
	f.exec(`DROP TRIGGER swallow ON guarded`)
	pgtest.Eventually(t, longEnough, func() bool { return f.one(`SELECT count(*)::text FROM guarded WHERE published_at IS NULL`) == "0" }, "all are stamped")
	require.Len(t, f.pubs["queue"].bodies(), 50)
}

func TestRowWhoseClaimATriggerSwallowsIsTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Outbox{Table: "public.guarded", Status: ownStatus, Routes: []config.Route{{Kind: "*", To: "queue", Body: "{{.body}}"}}},
		`CREATE TABLE guarded (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, status text DEFAULT 'PENDING', claimed_at timestamptz)`,
		fmt.Sprintf(swallowing, "RETURN NULL;"), `CREATE TRIGGER swallow BEFORE UPDATE ON guarded FOR EACH ROW EXECUTE FUNCTION swallow()`)
	told := make(chan string, 100)
	f.relay.cfg.Conn.Tracer = &tracer{ends: func(_ string, err error) {
		if RowFault(err) {
			told <- PublicError(err)
		}
	}}
	f.start()
	ids := f.ids(`INSERT INTO guarded (body) VALUES ('a'), ('kept'), ('b') RETURNING id::text`)
	f.offer(ids...)
	f.pubs["queue"].wait(t, 2)
	require.Contains(t, <-told, "a trigger keeps row "+ids[1]+" as it is")
	require.ElementsMatch(t, []string{"a", "b"}, f.pubs["queue"].bodies())
	require.Equal(t, "PENDING", f.one(`SELECT status FROM guarded WHERE body = 'kept'`))
}
