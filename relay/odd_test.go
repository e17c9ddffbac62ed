package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// Values that a database may hold and others stumble over.

func TestNumbersAndTimesThatAreNoneAndTypesOfTheUsersGoOutAsTheirText(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Outbox{
		Table: "public.odd", Columns: config.Columns{OrderingKey: "n"},
		Routes: []config.Route{{Kind: "*", To: "fifo", Body: `[{{json .n}},{{json .f}},{{json .r}},{{json .at}},{{json .day}},{{json .m}},{{json .s}},{{json .p}},{{json .a}},{{json .g}},{{json .created_at}}]`}},
	},
		`CREATE TYPE mood AS ENUM ('sad', 'so-so')`, `CREATE DOMAIN small AS int CHECK (VALUE < 10)`, `CREATE TYPE pair AS (a int, b text)`,
		`CREATE TABLE odd (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid UNIQUE DEFAULT gen_random_uuid(), n numeric DEFAULT 'NaN', f float8 DEFAULT '-Infinity', r real DEFAULT 'Infinity',
			at timestamptz DEFAULT 'infinity', day date DEFAULT '-infinity', m mood DEFAULT 'so-so', s small DEFAULT 7, g int GENERATED ALWAYS AS (s * 2) STORED, p pair DEFAULT '(1,"x y")', a mood[] DEFAULT '{sad,so-so}',
			created_at timestamptz DEFAULT '-infinity', available_at timestamptz, published_at timestamptz)`)
	f.start()
	ids := f.ids(`INSERT INTO odd (available_at) VALUES (NULL), ('-infinity'), ('infinity'), (NULL) RETURNING id::text`)
	f.offer(ids...)
	pub := f.pubs["fifo"]
	pub.wait(t, 3)
	pgtest.Eventually(t, longEnough, func() bool {
		return f.one(`SELECT coalesce(string_agg(id::text, ' '), '') FROM odd WHERE published_at IS NULL`) == ids[2]
	}, "all but the one that is never due are stamped")
	for _, body := range pub.bodies() {
		require.Equal(t, `["NaN","-Infinity","Infinity","infinity","-infinity","so-so",7,"(1,\"x y\")","{sad,so-so}",14,"-infinity"]`, body)
	}
	var next *float64
	require.NoError(t, f.conn.QueryRow(t.Context(), f.relay.Tables()[0].NextDue()).Scan(&next))
	require.Nil(t, next, "infinity is nobody's timer")
	require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
}

func TestRowWithStrayBytesDiesAlone(t *testing.T) {
	t.Parallel()
	f := newFixtureOn(t, pgtest.Encoded(t, "SQL_ASCII"), toQueue)
	f.start()
	// chr(233) is one byte here, and no UTF-8.
	ids := f.ids(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, headers) VALUES
		('q', NULL, '"caf` + "\u00e9" + `"', NULL),
		('q', NULL, to_jsonb('caf' || chr(233)), NULL),
		('q' || chr(233), NULL, '1', NULL),
		('q', NULL, '1', jsonb_build_object('h', chr(233))),
		('nobody' || chr(233), NULL, '1', NULL),
		('q', NULL, '"last"', NULL) RETURNING id::text`)
	f.offer(ids...)
	f.settled(0)
	require.ElementsMatch(t, []string{`"caf` + "\u00e9" + `"`, `"last"`}, f.pubs["queue"].bodies())
	require.Equal(t, []string{ids[1] + " invalid_utf8", ids[2] + " invalid_utf8", ids[3] + " malformed_headers", ids[4] + " unknown_kind"},
		f.ids(`SELECT row_id || ' ' || reason FROM pgrelay.dead_letters ORDER BY row_id::bigint`))

	// A key may be such a thing as well: its hash is the group.
	keyed := f.ids(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) SELECT 'f', 'k' || chr(233), to_jsonb(n) FROM generate_series(1, 200) n RETURNING id::text`)
	f.offer(keyed...)
	f.settled(0)
	require.Len(t, f.pubs["fifo"].messages(), 200)
	require.Equal(t, hashedID, f.pubs["fifo"].messages()[0].Group[:len(hashedID)])
}

func TestDatabaseThatIsNotUTF8IsConverted(t *testing.T) {
	t.Parallel()
	f := newFixtureOn(t, pgtest.Encoded(t, "LATIN1"), toQueue, `SET client_encoding = UTF8`)
	f.start()
	f.pubs["queue"].script(func(m *Message) Result {
		if m.Body == "1" {
			return Result{Outcome: OutcomeRejected, Reason: "odd", Detail: "no “1”"} // has characters that the database can't store
		}
		return Result{Outcome: OutcomeDelivered}
	})
	f.offer(f.ids(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload) VALUES ('q', NULL, '"caf` + "\u00e9" + `"'), ('q', NULL, '1') RETURNING id::text`)...)
	f.settled(0)
	require.Equal(t, []string{`"caf` + "\u00e9" + `"`}, f.pubs["queue"].bodies())
	require.Equal(t, "odd no ?1?", f.one(`SELECT reason || ' ' || detail FROM pgrelay.dead_letters`))
}
