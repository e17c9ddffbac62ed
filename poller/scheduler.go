package poller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"pgrelay/relay"
)

// Job is SQL that puts due work into an outbox.
type Job struct {
	Name  string
	Every time.Duration
	SQL   string // one or more statements, without BEGIN and COMMIT
}

// SchedulerConfig of a scheduler.
type SchedulerConfig struct {
	Conn *pgx.ConnConfig // as parsed: jobs run with the settings of their role
	// Instance is the relay's own: a job only runs while the table of leaders names it.
	Instance   string
	Jobs       []Job
	Enabled    bool
	Registerer prometheus.Registerer
	Log        zerolog.Logger
}

// Scheduler runs jobs while its instance leads: each on a session of its own, in one transaction a tick, never beside itself. A tick that
// comes while the one before still runs is left out. A job that fails is logged, counted and run again at its next
// tick; the others don't notice. Enable is safe for concurrent use.
type Scheduler struct {
	cfg     SchedulerConfig
	enabled atomic.Bool
	on      prometheus.Gauge
	runs    *prometheus.CounterVec
}

// What came of a job's run.
const (
	jobDone   = "done"
	jobFailed = "failed"
)

// NewScheduler builds a scheduler.
func NewScheduler(cfg SchedulerConfig) *Scheduler {
	s := &Scheduler{
		cfg: cfg,
		on: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pgrelay_scheduler_enabled", Help: "1 while jobs are run when they are due, 0 while they are switched off."}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			// Not "job": Prometheus has a label of that name.
			Name: "pgrelay_job_runs_total", Help: "Ticks of a job, by what came of them."}, []string{"name", "result"}),
	}
	for _, j := range cfg.Jobs { // there from the start, so that a rate over them sees the first
		s.runs.WithLabelValues(j.Name, jobDone)
		s.runs.WithLabelValues(j.Name, jobFailed)
	}
	cfg.Registerer.MustRegister(s.on, s.runs)
	s.Enable(cfg.Enabled)
	return s
}

// Enable switches all jobs on or off, from their next tick on; a run that has begun ends by itself. It says whether that changes anything.
func (s *Scheduler) Enable(on bool) bool {
	if on {
		s.on.Set(1)
	} else {
		s.on.Set(0)
	}
	return s.enabled.Swap(on) != on
}

// Run runs the jobs until ctx ends, and returns nil.
func (s *Scheduler) Run(ctx context.Context) error {
	var g sync.WaitGroup
	for _, j := range s.cfg.Jobs {
		g.Go(func() { s.repeat(ctx, j) })
	}
	g.Wait()
	return nil
}

// repeat runs a job at its ticks, the first of them at once.
func (s *Scheduler) repeat(ctx context.Context, j Job) {
	r := &jobRunner{scheduler: s, job: j, log: s.cfg.Log.With().Str("job", j.Name).Logger()}
	defer func() { relay.CloseSession(r.conn) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for tick := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if s.enabled.Load() {
			r.tick(ctx)
		}
		tick = following(tick, j.Every, time.Now())
		timer.Reset(time.Until(tick))
	}
}

// following is the first tick after now of those that come every so often.
func following(tick time.Time, every time.Duration, now time.Time) time.Time {
	return tick.Add(every * (1 + max(0, now.Sub(tick))/every))
}

// jobRunner is one job with its session.
type jobRunner struct {
	scheduler *Scheduler
	job       Job
	conn      *pgx.Conn
	said      string // the error that was logged last; empty while the job works
	log       zerolog.Logger
}

// jobConnect bounds one host's connect: a job whose host is silent is tried again at its next tick.
const jobConnect = 5 * time.Second

// errNotLeading says that another instance has taken the lead: nothing is run, and the end of this lead is on its way.
var errNotLeading = errors.New("another instance leads")

func (r *jobRunner) tick(ctx context.Context) {
	err := r.run(ctx)
	switch {
	case ctx.Err() != nil || errors.Is(err, errNotLeading):
		return
	case err != nil:
		r.scheduler.runs.WithLabelValues(r.job.Name, jobFailed).Inc()
		if text := relay.PublicError(err); text != r.said {
			r.said = text
			r.log.Error().Str("error", text).Stringer("again_in", r.job.Every).Msg("job failed; it is run again, others go on")
		}
		return
	case r.said != "":
		r.said = ""
		r.log.Info().Msg("job works again")
	}
	r.scheduler.runs.WithLabelValues(r.job.Name, jobDone).Inc()
}

func (r *jobRunner) run(ctx context.Context) error {
	if r.conn == nil || r.conn.IsClosed() {
		conn, err := pgx.ConnectConfig(ctx, r.session())
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		r.conn = conn
	}
	tx, err := r.conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadWrite})
	if err != nil {
		return err
	}
	if err = r.work(ctx, tx); err != nil {
		// Where it can't be rolled back, the session is of no use any more.
		if tx.Rollback(ctx) != nil {
			relay.CloseSession(r.conn)
		}
		return err
	}
	return tx.Commit(ctx)
}

// work runs the job in its transaction, if this instance still leads. The commit waits for the disk, because a message that is sent
// can't be taken back, but for no standby, which might be away.
func (r *jobRunner) work(ctx context.Context, tx pgx.Tx) error {
	var leads bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pgrelay.leader WHERE instance::text = $1), set_config('synchronous_commit', 'local', true)`,
		r.scheduler.cfg.Instance).Scan(&leads, nil)
	if err != nil {
		return err
	}
	if !leads {
		return errNotLeading
	}
	if _, err := r.conn.PgConn().Exec(ctx, r.job.SQL).ReadAll(); err != nil {
		return err
	}
	if r.conn.PgConn().TxStatus() != 'T' {
		return errors.New("its SQL ends the transaction that it runs in: leave BEGIN, COMMIT and ROLLBACK out")
	}
	return nil
}

// session has the settings of the role and the URL: the SQL is the user's, and the relay's settings are made for its own.
func (r *jobRunner) session() *pgx.ConnConfig {
	c := r.scheduler.cfg.Conn.Copy()
	if c.ConnectTimeout == 0 || c.ConnectTimeout > jobConnect {
		c.ConnectTimeout = jobConnect
	}
	c.RuntimeParams["application_name"] = "pgrelay job " + r.job.Name
	if c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	return c
}
