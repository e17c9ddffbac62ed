package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	writers    = 4
	keys       = 40
	writerRest = 170 * ms // on average, between two transactions of some three rows
)

// writer commits transactions, and rolls some back, over whatever happens to the server. What failed is
// not in the table, and the table is what deliveries are compared with.
type writer struct {
	w    *world
	rnd  *rand.Rand
	conn *pgx.Conn
}

func (w *world) newWriter(n int) *writer {
	return &writer{w: w, rnd: rand.New(rand.NewPCG(w.plan.seed, uint64(n)))}
}

// keepAt does work again and again, with a random rest of some length in between, until ctx ends.
func (wr *writer) keepAt(ctx context.Context, rest time.Duration, work func(context.Context) error) {
	defer func() {
		if wr.conn != nil {
			closeConn(wr.conn)
		}
	}()
	for ; ctx.Err() == nil; pause(ctx, time.Duration(wr.rnd.ExpFloat64()*float64(rest))) {
		if wr.conn == nil || wr.conn.IsClosed() {
			wr.conn, _ = wr.w.connect(ctx)
			continue
		}
		// Never cut off in the middle: the server could commit it when everything has been counted.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		if err := work(limited); err != nil {
			closeConn(wr.conn)
		}
		cancel()
	}
}

// transaction writes rows of a few keys, whose turn it waits for, and commits most of the time.
func (wr *writer) transaction(ctx context.Context) error {
	n, k := 1+wr.rnd.IntN(5), 1+wr.rnd.IntN(2)
	if wr.rnd.IntN(200) == 0 {
		n, k = 200+wr.rnd.IntN(200), 10
	}
	chosen := make([]string, k)
	for i := range chosen {
		chosen[i] = fmt.Sprint("customer ", wr.rnd.IntN(keys)*wr.rnd.IntN(2)) // half of them is customer 0
	}
	slices.Sort(chosen)
	chosen = slices.Compact(chosen)
	tx, err := wr.conn.Begin(ctx)
	if err != nil {
		return err
	}
	for _, key := range chosen {
		if _, err := tx.Exec(ctx, `INSERT INTO chaos.aggregates AS a VALUES ($1) ON CONFLICT (key) DO UPDATE SET key = a.key`, key); err != nil {
			return err
		}
	}
	if err := wr.insert(ctx, tx, chosen, n); err != nil {
		return err
	}
	if wr.rnd.IntN(4) == 0 {
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := wr.insert(ctx, savepoint, chosen, 1+wr.rnd.IntN(3)); err != nil {
			return err
		}
		if err := wr.end(ctx, savepoint, 2); err != nil {
			return err
		}
	}
	if wr.rnd.IntN(20) == 0 {
		pause(ctx, time.Duration(wr.rnd.Int64N(int64(600*ms)))) // ids that become visible late
	}
	return wr.end(ctx, tx, 8)
}

// end commits, and one time in n rolls back.
func (wr *writer) end(ctx context.Context, tx pgx.Tx, n int) error {
	if wr.rnd.IntN(n) == 0 {
		return tx.Rollback(ctx)
	}
	return tx.Commit(ctx)
}

func (wr *writer) insert(ctx context.Context, tx pgx.Tx, chosen []string, n int) error {
	kinds, owners, bodies, due := make([]string, n), make([]*string, n), make([]string, n), make([]*float64, n)
	for i := range n {
		switch dice := wr.rnd.IntN(200); {
		case dice == 0:
			kinds[i] = "x.nobody" // no route
		case dice < 120:
			kinds[i] = "f.order"
		default:
			kinds[i] = "q.order"
		}
		if wr.rnd.IntN(10) > 0 {
			owners[i] = &chosen[wr.rnd.IntN(len(chosen))]
		}
		bodies[i] = fmt.Sprintf(`{"v": 1, "filling": %q}`, filling[:wr.rnd.IntN(len(filling))])
		if wr.rnd.IntN(12) == 0 {
			seconds := 0.2 + 4*wr.rnd.Float64()
			due[i] = &seconds
		}
	}
	switch wr.rnd.IntN(5) {
	case 0:
		_, err := tx.Exec(ctx, `WITH made AS (INSERT INTO chaos.tasks SELECT gen_random_uuid(), replace(k, 'f.', 'q.'), b::jsonb, $3 OR random() < 0.5
			  FROM unnest($1::text[], $2::text[]) AS u(k, b) RETURNING id)
			INSERT INTO public.backfill (task) SELECT id FROM made`, kinds, bodies, wr.w.plan.slow)
		return err
	case 1, 2:
		_, err := tx.Exec(ctx, `INSERT INTO public.mail (topic, customer, document)
			SELECT k, o, b::jsonb FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS u(k, o, b, n) ORDER BY n`, kinds, owners, bodies)
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, available_at)
		SELECT k, o, b::jsonb, clock_timestamp() + d * interval '1 second'
		  FROM unnest($1::text[], $2::text[], $3::text[], $4::float8[]) WITH ORDINALITY AS u(k, o, b, d, n) ORDER BY n`, kinds, owners, bodies, due)
	return err
}

// order writes rows of a few keys that a dead row holds, or not.
func (wr *writer) order(ctx context.Context) error {
	return wr.alone(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload)
			SELECT CASE WHEN random() < 0.7 THEN 'f.held' ELSE 'f.order' END, 'order ' || floor(random() * 8),
			       CASE WHEN random() < 0.1 THEN '{"v": 1, "bad": true}' ELSE '{"v": 1}' END::jsonb FROM generate_series(1, $1)`, 1+wr.rnd.IntN(4))
		return err
	})
}

// invite writes mails to one, two or three recipients each, some with a key.
func (wr *writer) invite(ctx context.Context) error {
	return wr.alone(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH new AS MATERIALIZED (SELECT gen_random_uuid() AS event, 1 + floor(random() * 3)::int AS guests, floor(random() * 10) AS key FROM generate_series(1, $1))
			INSERT INTO pgrelay.outbox_events (event_id, event_type, ordering_key, payload)
			SELECT event, 'mail', CASE WHEN key < 4 THEN 'calendar ' || key END,
			       jsonb_build_object('v', 1, 'to', ARRAY(SELECT n || '.' || event || '@example.com' FROM generate_series(1, guests) AS n)) FROM new`, 1+wr.rnd.IntN(3))
		return err
	})
}

// alone is a transaction of a writer whose keys nobody else writes.
func (wr *writer) alone(ctx context.Context, write func(pgx.Tx) error) error {
	tx, err := wr.conn.Begin(ctx)
	if err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return err
	}
	return wr.end(ctx, tx, 8)
}

var filling = func() string {
	all := make([]byte, 600)
	for i := range all {
		all[i] = byte('a' + i%26)
	}
	return string(all)
}()

// edit changes a row that was written lately. Most are in flight; where looks are regular it re-arms as well what has
// been delivered.
func (wr *writer) edit(ctx context.Context) error {
	table := tables[wr.rnd.IntN(len(tables))]
	only := pends[table]
	if !wr.w.plan.slow && wr.rnd.IntN(2) == 0 {
		only += " OR " + published[table]
	}
	content := ""
	if c := payload[table]; c != "" {
		content = fmt.Sprintf("%[1]s = jsonb_set(%[1]s, '{v}', to_jsonb((%[1]s ->> 'v')::int + 1)),", c)
	}
	_, err := wr.conn.Exec(ctx, fmt.Sprintf(`
		WITH one AS MATERIALIZED (SELECT id FROM %[1]s WHERE id > (SELECT max(id) - 60 FROM %[1]s) AND (%[2]s) ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED)
		UPDATE %[1]s SET %[3]s %[4]s WHERE id = (SELECT id FROM one)`,
		table, only, content, rearm[table]))
	return err
}

// ready opens tasks whose rows wait for that, which only a look finds.
func (wr *writer) ready(ctx context.Context) error {
	_, err := wr.conn.Exec(ctx, openTasks+` AND random() < 0.3`)
	return err
}

// halt is a worker of the user's own that takes a row and dies: it is taken back after claim_timeout.
func (wr *writer) halt(ctx context.Context) error {
	_, err := wr.conn.Exec(ctx, `UPDATE public.backfill SET state = 'PROCESSING', claimed_at = clock_timestamp() WHERE id =
		(SELECT id FROM public.backfill WHERE state = 'PENDING' ORDER BY id DESC LIMIT 1 FOR UPDATE SKIP LOCKED)`)
	return err
}

const openTasks = `UPDATE chaos.tasks SET open = true, opened = clock_timestamp() WHERE NOT open`

// beBusy writes what concerns no outbox.
func (wr *writer) beBusy(ctx context.Context) error {
	_, err := wr.conn.Exec(ctx, `UPDATE chaos.busy SET n = n + 1 WHERE id = $1`, 1+wr.rnd.IntN(20))
	return err
}
