package replication

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestRowsArriveByInsertAndCopyAndNeverWhenRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t)).start().connected()
	conn := r.db.Connect(t)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(`INSERT INTO outbox (payload) VALUES ('1'), ('2')`)
	exec(`BEGIN; INSERT INTO outbox (payload) VALUES ('3'); ROLLBACK`)
	exec(`BEGIN; INSERT INTO outbox (payload) VALUES ('4'); SAVEPOINT s; INSERT INTO outbox (payload) VALUES ('5'); ROLLBACK TO s; COMMIT`)
	_, err := conn.CopyFrom(t.Context(), pgx.Identifier{"outbox"}, []string{"payload"}, pgx.CopyFromRows([][]any{{"6"}, {"7"}}))
	require.NoError(t, err)
	r.arrives("outbox", "1", "2", "4", "6", "7")
	require.EqualValues(t, 5, r.metric("pgrelay_stream_rows_total"))
	require.EqualValues(t, 1, r.metric("pgrelay_stream_connected"))
	r.stop()
	require.EqualValues(t, 0, r.metric("pgrelay_stream_connected"))
}

func TestARowComesWithItsTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t)).start().connected()
	conn := r.db.Connect(t)
	before := query[time.Time](t, r.db, `SELECT clock_timestamp()`)
	start := query[string](t, r.db, `SELECT pg_current_wal_lsn()::text`)
	var xid uint32
	require.NoError(t, conn.QueryRow(t.Context(), `INSERT INTO outbox DEFAULT VALUES RETURNING pg_current_xact_id()::text::bigint % (1::bigint << 32)`).Scan(&xid))
	end := query[string](t, r.db, `SELECT pg_current_wal_insert_lsn()::text`)
	r.arrives("outbox", "1")
	got := r.sink.rows[0]
	require.Equal(t, xid, got.xid)
	require.WithinRange(t, got.at, before.Add(-time.Millisecond), before.Add(patience))
	require.True(t, query[bool](t, r.db, `SELECT $1::text::pg_lsn <= $2::text::pg_lsn AND $2::text::pg_lsn <= $3::text::pg_lsn`, start, pglogrepl.LSN(got.lsn).String(), end))
}

func TestAHugeTransactionNeedsNoMemory(t *testing.T) {
	t.Parallel()
	const rows = 100_000
	r := newRig(t, pgtest.New(t))
	var n, most atomic.Int64
	r.sink.onRow = func() {
		if n.Add(1)%20_000 != 0 {
			return
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), int64(m.HeapAlloc)))
	}
	r.start().connected()
	r.db.Exec(t, `INSERT INTO outbox (payload) SELECT repeat('x', 300) FROM generate_series(1, $1)`, rows)
	r.eventually("all rows arrive", func() error {
		if got := n.Load(); got != rows {
			return fmt.Errorf("%d rows", got)
		}
		return nil
	})
	// A hundred bytes a row would be 10 MB on top of what the test binary holds anyway.
	require.Less(t, most.Load(), int64(24<<20))
}

func TestPartitionsArriveUnderTheirRoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE TABLE parts (id bigint, day int) PARTITION BY RANGE (day);
		CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (2);
		CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (2) TO (3)`)
	r.cfg.Tables = append(r.cfg.Tables, Table{Schema: "public", Name: "parts", IDColumn: "id", Canonical: "parts"})
	r.start().connected()
	r.db.Exec(t, `INSERT INTO parts VALUES (10, 1), (20, 2)`)
	r.db.Exec(t, `CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (3) TO (4)`)
	r.db.Exec(t, `INSERT INTO parts VALUES (30, 3)`)
	r.db.Exec(t, `INSERT INTO parts_1 VALUES (11, 1)`)
	r.arrives("parts", "10", "20", "30", "11")
	require.Zero(t, r.metric("pgrelay_stream_unmatched_rows_total"))
}

func TestQuotedNamesArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE SCHEMA "My ""Schema"; CREATE TABLE "My ""Schema"."Out'box" ("Row.Id" uuid)`)
	r.cfg.Publication = `Pub "lic' ation`
	r.cfg.Tables = []Table{{Schema: `My "Schema`, Name: `Out'box`, IDColumn: "Row.Id", Canonical: "quoted"}}
	r.start().connected()
	const id = "00000000-0000-4000-8000-000000000001"
	r.db.Exec(t, `INSERT INTO "My ""Schema"."Out'box" VALUES ($1)`, id)
	r.arrives("quoted", id)
}

func TestIDsReadTheSameWhateverTheDatabaseSets(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `DROP TABLE outbox; CREATE TABLE outbox (id timestamptz); CREATE TABLE hashes (id bytea)`)
	r.cfg.Tables = append(r.cfg.Tables, Table{Schema: "public", Name: "hashes", IDColumn: "id", Canonical: "hashes"})
	for _, setting := range []string{`DateStyle = 'German'`, `TimeZone = 'Asia/Kathmandu'`, `bytea_output = 'escape'`} {
		r.db.Exec(t, `ALTER DATABASE `+r.db.Name+` SET `+setting)
	}
	r.start().connected()
	r.db.Exec(t, `INSERT INTO outbox VALUES ('2026-05-04 12:00:00.5+02'); INSERT INTO hashes VALUES ('\x0041ff')`)
	r.arrives("outbox", "2026-05-04 10:00:00.5+00")
	r.arrives("hashes", `\x0041ff`)
}

func TestColumnsMayComeAndGoWhileStreaming(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `DROP TABLE outbox; CREATE TABLE outbox (first text, id bigint, last text)`)
	r.db.Exec(t, `CREATE TABLE other (id bigint)`)
	// A publication of whole rows, so that positions in the tuple really change.
	r.db.Exec(t, `CREATE PUBLICATION pgrelay FOR TABLE outbox, other WITH (publish = 'insert')`)
	r.cfg.Tables = append(r.cfg.Tables, Table{Schema: "public", Name: "other", IDColumn: "id", Canonical: "other"})
	r.start().connected()
	r.db.Exec(t, `INSERT INTO outbox VALUES ('f', 1, 'l')`)
	r.db.Exec(t, `ALTER TABLE outbox DROP COLUMN first; INSERT INTO outbox VALUES (2, 'l')`)
	r.db.Exec(t, `ALTER TABLE outbox ADD COLUMN extra int[] DEFAULT '{}'; INSERT INTO outbox VALUES (3, 'l')`)
	r.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN last TO latest; INSERT INTO outbox VALUES (4, 'l')`)
	r.arrives("outbox", "1", "2", "3", "4")

	r.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN id TO key; INSERT INTO outbox VALUES (5, 'l'), (6, 'l')`)
	r.db.Exec(t, `INSERT INTO other VALUES (1)`)
	r.arrives("other", "1")
	require.EqualValues(t, 2, r.metric("pgrelay_stream_unmatched_rows_total"))
	require.Contains(t, r.logs.String(), "without their id")

	r.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN key TO id; INSERT INTO outbox VALUES (7, 'l')`)
	r.arrives("outbox", "1", "2", "3", "4", "7")
	require.Contains(t, r.logs.String(), "with their id again")
	require.NoError(t, r.stream.Condition())
}

func TestWhatIsNotNeededIsSkipped(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN small AS int CHECK (VALUE < 10); CREATE TYPE pair AS (a int, b text);
		ALTER TABLE outbox ADD m mood DEFAULT 'sad', ADD s small DEFAULT 1, ADD p pair DEFAULT '(1,x)', ADD a mood[] DEFAULT '{sad,happy}', ADD big text;
		CREATE TABLE alien (id bigint PRIMARY KEY);
		CREATE PUBLICATION pgrelay FOR ALL TABLES`)
	r.start().connected()
	r.insert(2)
	r.db.Exec(t, `UPDATE outbox SET big = repeat('x', 100000); UPDATE outbox SET m = 'happy'; DELETE FROM outbox WHERE id = 2`)
	r.db.Exec(t, `SELECT pg_logical_emit_message(true, 'p', 'c'), pg_logical_emit_message(false, 'p', 'c')`)
	r.db.Exec(t, `INSERT INTO alien SELECT generate_series(1, 3)`)
	r.db.Exec(t, `TRUNCATE outbox, alien`)
	replica := r.db.Connect(t)
	for _, sql := range []string{ // what a subscription applies carries its origin
		`SELECT pg_replication_origin_create('of_' || current_database())`, `SELECT pg_replication_origin_session_setup('of_' || current_database())`,
		`INSERT INTO outbox DEFAULT VALUES`, `SELECT pg_replication_origin_session_reset()`, `SELECT pg_replication_origin_drop('of_' || current_database())`,
	} {
		_, err := replica.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	r.insert(1)
	r.arrives("outbox", "1", "2", "3", "4")
	require.EqualValues(t, 3, r.metric("pgrelay_stream_unmatched_rows_total"))
	require.Zero(t, r.metric("pgrelay_stream_reconnects_total"))
}

func TestStrayBytesCutNoStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Encoded(t, "SQL_ASCII"))
	r.db.Exec(t, `DROP TABLE outbox; CREATE TABLE outbox (id text, payload text)`)
	r.db.Exec(t, `CREATE PUBLICATION pgrelay FOR TABLE outbox WITH (publish = 'insert')`) // of whole rows, as before PostgreSQL 15
	r.start().connected()
	r.db.Exec(t, `INSERT INTO outbox VALUES ('1', 'caf' || chr(233)), ('2' || chr(233), ''), ('3', '')`) // one byte that is no UTF-8
	r.arrives("outbox", "1", "2\xe9", "3")
	require.Zero(t, r.metric("pgrelay_stream_reconnects_total"))
}

func TestTheSlotFollowsWhileTheOutboxIsIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t))
	r.db.Exec(t, `CREATE TABLE busy (x text)`)
	neighbour := r.db.Server.NewDatabase(t)
	neighbour.Exec(t, `CREATE TABLE busy (x text)`)
	r.start().connected()
	for _, db := range []*pgtest.Database{r.db, neighbour} {
		db.Exec(t, `INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 1000)`)
		at := query[string](t, db, `SELECT pg_current_wal_lsn()::text`)
		r.eventually("the slot follows", func() error {
			if !query[bool](t, r.db, `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, at, r.cfg.Slot) {
				return fmt.Errorf("confirmed %s, not %s", r.slot().ConfirmedFlushLSN, at)
			}
			return nil
		})
	}
}

func TestTheEndConfirmsWhatWasHandedOverAndTheNextStartGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t)).start().connected()
	ids := r.insert(3)
	r.arrives("outbox", ids...)
	r.stop()
	require.Zero(t, r.slot().Holder.PID, "the walsender is gone when Run returns")
	ids = append(ids, r.insert(2)...)
	r.start().connected()
	r.arrives("outbox", ids...)
	require.Equal(t, []string{"slot created: missing", "connected"}, r.sink.caughtUp())
}
