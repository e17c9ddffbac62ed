package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
	"pgrelay/relay"
)

var bookings = config.Outbox{
	Table: "bookings", Status: config.Status{Column: "status", Pending: "PENDING", Processing: "PROCESSING", Published: "PUBLISHED", Dead: "FAILED"},
	Routes: []config.Route{{Kind: "*", To: "a"}},
}

const bookingsTable = `CREATE TABLE bookings (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), payload text, status text DEFAULT 'PENDING', updated_at timestamptz DEFAULT now(), published_at timestamptz)`

// left waits until a query over a table gives what it should.
func (f *fixture) left(query, want string) {
	f.t.Helper()
	pgtest.Eventually(f.t, patience, func() error {
		var got string
		if err := f.conn.QueryRow(f.t.Context(), query).Scan(&got); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s, not %s", got, want)
		}
		return nil
	}, "%s", query)
}

func TestRowsThatADeadWorkerLeftInProcessingAreOfferedWithinASweep(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.exec(bookingsTable)
	f.open(bookings)
	f.cfg.SweepInterval = 50 * time.Millisecond
	f.exec(`INSERT INTO bookings (status, updated_at) SELECT 'PROCESSING', now() - interval '2 min' FROM generate_series(1, $1::int)`, relay.LookSize+1)
	f.exec(`INSERT INTO bookings (status) VALUES ('PROCESSING')`)
	f.start()
	f.offered(relay.LookSize + 1)
	f.left(`SELECT count(*)::text FROM bookings WHERE status = 'PROCESSING'`, "1")
	f.exec(`UPDATE bookings SET updated_at = now() - interval '2 min' WHERE status = 'PROCESSING'`)
	f.offered(relay.LookSize + 2)
}

func TestRetentionOfAnOutboxDeletesSettledRowsOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		index string
		by    string
	}{
		"by published_at": {`CREATE INDEX ON bookings (published_at) WHERE published_at IS NOT NULL`, "published_at"},
		"by updated_at":   {`ALTER TABLE bookings DROP COLUMN published_at; CREATE INDEX ON bookings (updated_at)`, "updated_at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, time.Hour)
			f.exec(bookingsTable + "; " + c.index)
			outbox := bookings
			outbox.Retention = config.Duration(time.Hour)
			f.open(outbox)
			f.exec(`INSERT INTO bookings (payload, status, ` + c.by + `) SELECT state || ' ' || age, state, now() - age::interval
				FROM generate_series(1, 1200) n, (VALUES ('PUBLISHED'), ('FAILED'), ('CANCELLED')) s(state), (VALUES ('2 h'), ('1 min')) a(age)`)
			f.exec(`INSERT INTO bookings (status, ` + c.by + `) VALUES ('PROCESSING', now() - interval '2 h')`)
			f.exec(`INSERT INTO pgrelay.failures (outbox, row_id, dead_at) SELECT 'public.bookings', id::text, now() FROM bookings WHERE payload = 'FAILED 2 h' LIMIT 7`)
			f.start()
			f.left(`SELECT string_agg(payload || ': ' || n, ', ' ORDER BY payload) FROM (SELECT payload, count(*) AS n FROM bookings WHERE payload IS NOT NULL GROUP BY payload) q`,
				"CANCELLED 1 min: 1200, CANCELLED 2 h: 1200, FAILED 1 min: 1200, FAILED 2 h: 7, PUBLISHED 1 min: 1200")
			f.left(`SELECT count(*)::text FROM bookings WHERE payload IS NULL`, "1")
		})
	}
}

func TestTableThatRefusesItsRetentionIsLookedAtAllTheSame(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20*time.Millisecond)
	f.exec(`CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text, published_at timestamptz); CREATE INDEX ON plain (published_at);
		CREATE TABLE refers (id bigint REFERENCES plain)`)
	f.open(config.Outbox{Table: "plain", Retention: config.Duration(time.Hour), Routes: []config.Route{{Kind: "*", To: "a"}}})
	f.cfg.SweepInterval = 20 * time.Millisecond
	f.exec(`INSERT INTO plain (published_at) VALUES (now() - interval '2 h'); INSERT INTO refers SELECT id FROM plain`)
	f.start()
	f.exec(`INSERT INTO plain (payload) SELECT 'x' FROM generate_series(1, 5)`)
	f.offered(5)
	seen := f.taker.offers("2")
	pgtest.Eventually(t, patience, func() bool { return f.taker.offers("2") > seen+5 }, "looks go on")
	f.exec(`DELETE FROM refers`)
	f.left(`SELECT count(*)::text FROM plain WHERE published_at IS NOT NULL`, "0")
	var n int
	require.NoError(t, f.conn.QueryRow(t.Context(), `SELECT count(*) FROM plain`).Scan(&n))
	require.Equal(t, 5, n)
}
