package chaos_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/pgtest"
)

// unleash brings about the plan's faults, each at its time, and returns when the last has ended.
func (w *world) unleash(ctx context.Context) {
	var all sync.WaitGroup
	turns := map[string]*sync.Mutex{} // on a busy machine a fault may last longer than planned
	for _, f := range w.plan.faults {
		if turns[f.target] == nil {
			turns[f.target] = &sync.Mutex{}
		}
		turn := turns[f.target]
		pause(ctx, time.Until(w.began.Add(f.at)))
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			turn.Lock()
			defer turn.Unlock()
			began := time.Now()
			ended, err := w.inflict(ctx, f)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.applied = append(w.applied, applied{f, began, ended, err})
		})
	}
	all.Wait()
}

// inflict brings one fault about and ends it. It returns when it was over: from then on the relay could recover.
func (w *world) inflict(ctx context.Context, f fault) (ended time.Time, err error) {
	switch f.kind {
	case "process killed", "process frozen", "process stopped":
		err = w.hitProcess(ctx, f)
	case "slot dropped":
		err = w.dropSlot()
	case "publication dropped":
		err = w.exec(`DROP PUBLICATION IF EXISTS pgrelay`)
	case "publication altered":
		err = w.exec([]string{`ALTER PUBLICATION pgrelay DROP TABLE public.mail`, `ALTER PUBLICATION pgrelay SET (publish = 'truncate')`}[f.dice%2])
	case "sessions ended":
		some := []string{"true", "random() < 0.5", "application_name = 'pgrelay leader'", "application_name = 'pgrelay stamp'"}[f.dice%4]
		err = w.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pgrelay%' AND ` + some)
	case "backend killed", "server crashed", "server restarted":
		err = w.hitServer(ctx, f)
	case "lead torn away":
		err = w.tearLead(ctx, f)
	case "rows locked", "table locked":
		err = w.lock(ctx, f)
	case "stamps refused":
		err = w.exec(`INSERT INTO chaos.trouble VALUES ($1, $2) ON CONFLICT (outbox) DO UPDATE SET every = excluded.every`, f.target, 3+f.dice%20)
		pause(ctx, f.lasts)
		w.until(func() error { return w.exec(`DELETE FROM chaos.trouble WHERE outbox = $1`, f.target) })
	default:
		w.hitLinkOrQueue(ctx, f)
	}
	return time.Now(), err
}

func (w *world) hitProcess(ctx context.Context, f fault) error {
	i := w.instances[f.target]
	r := i.current()
	switch f.kind {
	case "process killed":
		r.kill()
		pause(ctx, f.lasts)
		i.start()
	case "process frozen":
		r.signal(syscall.SIGSTOP)
		pause(ctx, f.lasts)
		r.signal(syscall.SIGCONT)
	case "process stopped":
		if err := r.stop(); err != nil {
			w.t.Error(err)
		}
		pause(ctx, f.lasts)
		i.start()
	}
	return nil
}

// hitLinkOrQueue changes how a network or a queue behaves.
func (w *world) hitLinkOrQueue(ctx context.Context, f fault) {
	if _, what, isLink := strings.Cut(f.kind, " link "); isLink {
		name, side, _ := strings.Cut(f.target, "-")
		p := w.instances[name].database
		if side == "queue" {
			p = w.instances[name].queue
		}
		p.set(networkOf(what, f.dice))
		pause(ctx, f.lasts)
		p.set(network{})
		if what == "half-open" && f.dice%2 == 0 {
			p.reset() // else what was held back arrives now
		}
		return
	}
	w.answers.set(f.target, f.kind)
	pause(ctx, f.lasts)
	w.answers.set(f.target, "")
}

// tearLead cuts the leader off from the database while calls take long, until another instance leads and has sent the same rows: what
// the first one had to say of them arrives then.
func (w *world) tearLead(ctx context.Context, f fault) error {
	name, err := w.ask(`SELECT left(process, 1) FROM chaos.log WHERE what = 'lead' ORDER BY seq DESC LIMIT 1`)
	if err != nil {
		return err
	}
	for _, q := range queues {
		w.answers.set(q, "calls late")
	}
	p := w.instances[name].database
	p.set(network{blocked: [2]bool{true, true}})
	pause(ctx, f.lasts)
	p.set(network{})
	pause(ctx, time.Second)
	for _, q := range queues {
		w.answers.set(q, "")
	}
	return nil
}

func networkOf(what string, dice uint64) network {
	switch what {
	case "cut":
		return network{cut: true}
	case "slow":
		delay := time.Duration(5+dice%60) * ms
		return network{delay: [2]time.Duration{delay, delay * time.Duration(dice%3)}}
	default:
		direction := (dice >> 8) % 3
		return network{blocked: [2]bool{direction != down, direction != up}}
	}
}

func (w *world) dropSlot() error {
	return w.retry(10*time.Second, func() error {
		return w.exec(`SELECT CASE WHEN active_pid IS NULL THEN pg_drop_replication_slot(slot_name)::text ELSE (pg_terminate_backend(active_pid, 1000))::text END,
			pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`)
	})
}

func (w *world) hitServer(ctx context.Context, f fault) error {
	switch f.kind {
	case "backend killed": // -9: the postmaster takes the others down and recovers
		if err := w.killBackend(ctx); err != nil {
			return err
		}
	case "server crashed":
		w.server.Kill(w.t)
		pause(ctx, f.lasts)
		w.server.Start(w.t)
	case "server restarted":
		w.server.Stop(w.t, pgtest.Fast)
		pause(ctx, f.lasts)
		w.server.Start(w.t)
	}
	w.until(func() error { return w.exec(`SELECT`) })
	return nil
}

func (w *world) killBackend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	var pid int
	err = conn.QueryRow(ctx, `SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgrelay%' ORDER BY random() LIMIT 1`).Scan(&pid)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing a backend: %w", err)
	}
	for conn.Ping(ctx) == nil { // until this session's end shows that the server has noticed
		pause(ctx, 10*ms)
	}
	return nil
}

// lock holds rows that were written lately, or the table, as somebody's open psql does.
func (w *world) lock(ctx context.Context, f fault) error {
	conn, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	sql := fmt.Sprintf(`SELECT FROM %[1]s WHERE id > (SELECT max(id) - 150 FROM %[1]s) AND id %% %d = 0 FOR UPDATE SKIP LOCKED`, f.target, 1+f.dice%7)
	if f.kind == "table locked" {
		sql = fmt.Sprintf(`LOCK TABLE %s IN %s MODE`, f.target, []string{"ACCESS EXCLUSIVE", "SHARE ROW EXCLUSIVE"}[f.dice%2])
	}
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return pgx.BeginFunc(limited, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(limited, sql); err != nil {
			return err
		}
		pause(limited, f.lasts)
		return nil
	})
}

// until does work until it succeeds.
func (w *world) until(work func() error) {
	if err := w.retry(patience, work); err != nil {
		w.t.Errorf("not within %s: %v", patience, err)
	}
}

func (w *world) retry(within time.Duration, work func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		err := work()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 50*ms)
	}
}

// heal makes sure that nothing is wrong any more.
func (w *world) heal() error {
	for _, i := range w.instances {
		i.database.set(network{})
		i.queue.set(network{})
	}
	for _, q := range queues {
		w.answers.set(q, "")
	}
	return w.retry(patience, func() error { return w.exec(`DELETE FROM chaos.trouble`) })
}
