package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/admin"
	"pgrelay/internal/check"
	"pgrelay/internal/config"
	"pgrelay/internal/status"
	"pgrelay/poller"
	"pgrelay/relay"
	"pgrelay/replication"
)

func newRun(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Relay until SIGINT or SIGTERM",
		Long: "Relay until SIGINT or SIGTERM. The first signal drains: messages in flight get\n" +
			"their outcome and their stamp, the rest goes back, the slot is confirmed, the\n" +
			"lock is freed. The second quits. SIGHUP takes scheduler.enabled from the file\n" +
			"again. It never migrates.",
		Example: "  pgrelay run --config pgrelay.yaml",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.run(cmd.Context()) },
	}
}

func (a *app) run(ctx context.Context) error {
	cfg, conn, err := a.load()
	if err != nil {
		return err
	}
	// A reader of standard output that goes away is a fault of that destination, not the end of the process.
	signal.Ignore(syscall.SIGPIPE)
	hup, stop := hangups()
	defer stop()
	log := a.logger(cfg.Log)
	destinations, err := a.destinations(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer closeAll(destinations)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	server, err := admin.Listen(cfg.HTTP.Addr, registry)
	if err != nil {
		return errors.New(check.Address(cfg.HTTP.Addr, err).String())
	}
	if addr := server.Addr(); addr != "" {
		log.Info().Str("addr", addr).Msg("serving metrics and health")
	}
	// The server outlives the drain, so that probes see how it goes.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return server.Serve(serving) })
	err = a.relay(ctx, cfg, conn, destinations, registry, server, hup, log)
	stopServing()
	return errors.Join(err, g.Wait())
}

// relay wires the parts together and runs them.
func (a *app) relay(ctx context.Context, cfg *config.Config, conn *pgx.ConnConfig, destinations []relay.Destination,
	registry *prometheus.Registry, server *admin.Server, hup <-chan os.Signal, log zerolog.Logger,
) error {
	tables, err := awaitTables(ctx, conn, cfg, log)
	if ctx.Err() != nil {
		return nil // stopped before it began
	}
	if err != nil {
		return err
	}
	r := relay.New(relay.Config{
		Conn: conn, Limits: cfg.Relay, Interval: time.Duration(cfg.Poller.Interval), Tables: tables,
		Destinations: destinations, Registerer: registry, Log: log,
	})
	p := poller.New(poller.Config{
		Conn: conn, Interval: time.Duration(cfg.Poller.Interval), SweepInterval: time.Duration(cfg.Poller.SweepInterval),
		ClaimTimeout: time.Duration(cfg.Relay.ClaimTimeout), Ledger: time.Duration(cfg.Retention.Ledger), Tables: tables, Registerer: registry, Log: log,
	}, r)
	r.SetLooker(p)
	server.Watch(r, func() any { return r.State() })
	s := poller.NewScheduler(poller.SchedulerConfig{
		Conn: conn, Instance: r.Instance().String(), Jobs: jobs(cfg.Scheduler), Enabled: cfg.Scheduler.Enabled, Registerer: registry, Log: log,
	})
	sources := []func(context.Context) error{p.Run, s.Run}
	if cfg.Replication.Enabled {
		stream, err := newStream(cfg, conn, tables, r, registry, log)
		if err != nil {
			return err
		}
		sources = append(sources, stream.Run)
	}
	sampler := status.NewSampler(conn, slotName(cfg, conn.Database), tables, registry, log)
	sampling, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return sampler.Run(sampling) })
	g.Go(func() error { a.reload(sampling, hup, s, log); return nil })
	err = r.Run(ctx, func(ctx context.Context) error { return together(ctx, sources) })
	stop()
	return errors.Join(err, g.Wait())
}

func jobs(cfg config.Scheduler) []poller.Job {
	all := make([]poller.Job, len(cfg.Jobs))
	for i, j := range cfg.Jobs {
		all[i] = poller.Job{Name: j.Name, Every: time.Duration(j.Every), SQL: j.SQL}
	}
	return all
}

// together runs the sources of ids until ctx ends.
func together(ctx context.Context, sources []func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range sources {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

func newStream(cfg *config.Config, conn *pgx.ConnConfig, tables []*relay.Table, r *relay.Relay,
	registry prometheus.Registerer, log zerolog.Logger,
) (*replication.Stream, error) {
	stream := replication.Config{
		Conn: conn, Slot: cfg.SlotName(conn.Database), Publication: cfg.Replication.Publication,
		Temporary: cfg.Replication.Temporary, Failover: cfg.Replication.Failover, MaxRetainedWAL: int64(cfg.Replication.MaxRetainedWAL),
		Log: log, Metrics: replication.NewMetrics(registry),
	}
	for _, t := range tables {
		stream.Tables = append(stream.Tables, replication.Table{Schema: t.Schema, Name: t.Relation, IDColumn: t.IDColumn.Name, Canonical: t.Name})
	}
	return replication.New(stream, r)
}

func closeAll(destinations []relay.Destination) {
	for _, d := range destinations {
		_ = d.Publisher.Close() // nothing is in flight any more
	}
}

// logger writes to standard error, so that a stdout destination has its stream for itself.
func (a *app) logger(cfg config.Log) zerolog.Logger {
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		level = zerolog.InfoLevel // validated before
	}
	w := a.stderr
	if cfg.Format == "console" {
		w = zerolog.ConsoleWriter{Out: a.stderr, TimeFormat: time.TimeOnly, NoColor: !terminalOf(a.stderr, a.env).color}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
