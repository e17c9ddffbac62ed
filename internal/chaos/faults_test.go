package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"pgrelay/internal/pgtest"
)

// unleash brings about the plan's faults, each at its time, and returns when the last has ended.
func (w *world) unleash(ctx context.Context) {
	var all sync.WaitGroup
	turns := map[string]*sync.Mutex{} // on a busy machine a fault may last longer than planned
	for _, targets := range [][]string{processes, databaseLinks, queueLinks, mailLinks, queues, mailServers, tables, slot, server, lead} {
		for _, t := range targets {
			turns[t] = &sync.Mutex{}
		}
	}
	for _, f := range w.plan.faults {
		pause(ctx, time.Until(w.began.Add(f.at)))
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			for _, t := range f.hits() {
				turns[t].Lock()
				defer turns[t].Unlock()
			}
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
		err = w.insist(`DROP PUBLICATION pgrelay`)
	case "publication altered":
		err = w.insist([]string{`ALTER PUBLICATION pgrelay DROP TABLE public.mail`, `ALTER PUBLICATION pgrelay SET (publish = 'truncate')`}[f.dice%2])
	case "sessions ended":
		some := []string{"true", "random() < 0.5", "application_name = 'pgrelay leader'", "application_name = 'pgrelay stamp'"}[f.dice%4]
		err = w.retry(patience, func() error {
			_, err := w.ask(`SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE application_name LIKE 'pgrelay%' AND ` + some)
			return err
		})
	case "backend killed", "server crashed", "server restarted":
		w.hitServer(ctx, f)
	case "lead torn away":
		err = w.tearLead(ctx, f)
	case "rows locked", "table locked":
		err = w.lock(ctx, f)
	case "stamps refused":
		err = w.insist(`INSERT INTO chaos.trouble VALUES ($1, $2) ON CONFLICT (outbox) DO UPDATE SET every = excluded.every`, f.target, 3+f.dice%20)
		pause(ctx, f.lasts)
		err = errors.Join(err, w.insist(`DELETE FROM chaos.trouble WHERE outbox = $1`, f.target))
	default:
		w.hitLinkOrServer(ctx, f)
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

// hitLinkOrServer changes how a network, a queue or the mail server behaves.
func (w *world) hitLinkOrServer(ctx context.Context, f fault) {
	if _, what, isLink := strings.Cut(f.kind, " link "); isLink {
		name, side, _ := strings.Cut(f.target, "-")
		p := w.instances[name].links[side]
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
	var name string
	err := w.retry(patience, func() (err error) {
		name, err = w.ask(`SELECT left(process, 1) FROM chaos.log WHERE what = 'lead' ORDER BY seq DESC LIMIT 1`)
		return err
	})
	if err != nil {
		return err
	}
	for _, q := range queues {
		w.answers.set(q, "calls late")
	}
	p := w.instances[name].links["database"]
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

// dropSlot waits until there is one.
func (w *world) dropSlot() error {
	const ours = ` FROM pg_replication_slots WHERE database = current_database()`
	return w.retry(patience, func() error {
		if err := w.exec(`SELECT pg_terminate_backend(active_pid)` + ours + ` AND active_pid IS NOT NULL`); err != nil {
			return err
		}
		_, err := w.ask(`SELECT pg_drop_replication_slot(slot_name)::text` + ours)
		return err
	})
}

func (w *world) hitServer(ctx context.Context, f fault) {
	switch f.kind {
	case "backend killed":
		w.server.KillBackend(w.t, "pgrelay%")
	case "server crashed":
		w.server.Kill(w.t)
		pause(ctx, f.lasts)
		w.server.Start(w.t)
	case "server restarted":
		w.server.Stop(w.t, pgtest.Fast)
		pause(ctx, f.lasts)
		w.server.Start(w.t)
	}
}

// lock holds rows that were written lately, or the table, as somebody's open psql does.
func (w *world) lock(ctx context.Context, f fault) error {
	sql := fmt.Sprintf(`SELECT FROM %[1]s WHERE id > (SELECT max(id) - 150 FROM %[1]s) AND id %% %d = 0 FOR UPDATE SKIP LOCKED`, f.target, 1+f.dice%7)
	if f.kind == "table locked" {
		sql = fmt.Sprintf(`LOCK TABLE %s IN %s MODE`, f.target, []string{"ACCESS EXCLUSIVE", "SHARE ROW EXCLUSIVE"}[f.dice%2])
	}
	return w.retry(patience, func() error {
		conn, err := w.connect(ctx)
		if err != nil {
			return err
		}
		defer closeConn(conn) // which ends the transaction, if no other fault has
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		tx, err := conn.Begin(limited)
		if err != nil {
			return err
		}
		done, err := tx.Exec(limited, sql)
		if err == nil && f.kind == "rows locked" && done.RowsAffected() == 0 {
			err = errors.New("there is no row to lock")
		}
		if err == nil {
			pause(limited, f.lasts)
		}
		return err
	})
}

// insist runs a statement that another fault may be in the way of.
func (w *world) insist(sql string, args ...any) error {
	return w.retry(patience, func() error { return w.exec(sql, args...) })
}

// retry does work until it succeeds.
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
		for _, p := range i.links {
			p.set(network{})
		}
	}
	w.answers.heal()
	return errors.Join(w.insist(`DELETE FROM chaos.trouble`), w.insist(openTasks), w.insist(`DELETE FROM chaos.ticking`))
}
