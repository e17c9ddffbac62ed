package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"pgrelay/internal/check"
	"pgrelay/internal/config"
	"pgrelay/migrations"
	"pgrelay/relay"
	"pgrelay/relay/smtp"
	"pgrelay/relay/sqs"
	"pgrelay/relay/stdout"
)

// load reads the configuration and the connection string in it.
func (a *app) load() (*config.Config, *pgx.ConnConfig, error) {
	cfg, err := config.Load(a.configFile, a.env)
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.ParseConfig(string(cfg.Database.URL))
	if err != nil {
		// Load has parsed it before; its error may quote the string.
		return nil, nil, &usageError{errors.New("database.url can't be parsed")}
	}
	return cfg, pool.ConnConfig, nil
}

// connect opens one session with the relay's settings.
func connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, relay.SessionConfig(config, "pgrelay"))
	if err != nil {
		return nil, &connectError{check.Connection(err, config), err}
	}
	return conn, nil
}

// connectError says why there is no session and what to do about it.
type connectError struct {
	check.Line
	err error
}

// Error implements error.
func (e *connectError) Error() string { return e.String() }

// Unwrap gives what the server or the network said.
func (e *connectError) Unwrap() error { return e.err }

// sinks are the destinations in the order of their names, which gives them their indexes.
func sinks(cfg *config.Config) []relay.Sink {
	var all []relay.Sink
	for name, d := range cfg.Destinations {
		all = append(all, relay.Sink{Name: name, FIFO: d.FIFO(), Ordered: d.Ordered(), Addressed: d.Type == config.TypeSMTP})
	}
	slices.SortFunc(all, func(a, b relay.Sink) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// destinations makes the publishers. It calls nobody.
func (a *app) destinations(ctx context.Context, cfg *config.Config, log zerolog.Logger) ([]relay.Destination, error) {
	var all []relay.Destination
	for _, sink := range sinks(cfg) {
		d := cfg.Destinations[sink.Name]
		pub, err := newPublisher(ctx, d, a.stdout, log.With().Str("destination", sink.Name).Logger())
		if err != nil {
			return nil, fmt.Errorf("destinations.%s: %w", sink.Name, err)
		}
		if a.Wrap != nil {
			pub = a.Wrap(sink.Name, pub)
		}
		all = append(all, relay.Destination{Sink: sink, Publisher: pub, Config: d})
	}
	return all, nil
}

func newPublisher(ctx context.Context, d config.Destination, w io.Writer, log zerolog.Logger) (relay.Publisher, error) {
	switch d.Type {
	case config.TypeStdout:
		return stdout.New(d, w)
	case config.TypeSMTP:
		return smtp.New(d, smtp.Options{})
	}
	return sqs.New(ctx, d, sqs.Options{Log: log})
}

// openTables looks the outboxes up, after the schema. All that is wrong is reported at once.
func openTables(ctx context.Context, conn *pgx.Conn, cfg *config.Config) ([]*relay.Table, error) {
	if err := migrations.Check(ctx, conn); err != nil {
		return nil, err
	}
	var tables []*relay.Table
	var errs []error
	for _, outbox := range cfg.Outboxes {
		t, err := relay.OpenTable(ctx, conn, outbox, sinks(cfg))
		if err != nil {
			errs = append(errs, located(cfg.File, outbox.Line, err)...)
			continue
		}
		tables = append(tables, t)
	}
	return tables, errors.Join(errs...)
}

// located says of each thing that is wrong with an outbox where that stands in the file.
func located(file string, line int, err error) (errs []error) {
	parts := []error{err}
	if joined, many := err.(interface{ Unwrap() []error }); many {
		parts = joined.Unwrap()
	}
	for _, part := range parts {
		if table := (*relay.TableError)(nil); errors.As(part, &table) {
			part = fmt.Errorf("%s:%d: %w", file, line, part)
		}
		errs = append(errs, part)
	}
	return errs
}

// awaitTables waits for a server that is out of reach and for tables that are locked, for as long as it takes. What waiting doesn't mend is an error:
// schema, table, column, wrong password or database.
func awaitTables(ctx context.Context, config *pgx.ConnConfig, cfg *config.Config, log zerolog.Logger) ([]*relay.Table, error) {
	said := ""
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		conn, err := connect(ctx, config)
		if err == nil {
			var tables []*relay.Table
			tables, err = startTables(ctx, conn, cfg, log)
			lost := conn.IsClosed()
			_ = conn.Close(context.WithoutCancel(ctx)) // only read from
			if err == nil || !lost && !relay.Passing(err) {
				return tables, err
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if hopeless(err) {
			return nil, err
		}
		text := relay.PublicError(err)
		refused := (*connectError)(nil)
		if errors.As(err, &refused) {
			text = refused.Error()
		}
		switch {
		case text == said:
		case refused == nil && relay.Passing(err):
			log.Error().Str("error", text).Msg("the tables can't be looked at now; trying again")
		default:
			log.Error().Str("error", text).Msg("PostgreSQL is out of reach; trying again")
		}
		said = text
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// startTables opens the tables and logs what a person should mend although the relay works, or does so in part. Nobody may be there
// to say later that the slot of a relay that is stopped for good keeps WAL without bound.
func startTables(ctx context.Context, conn *pgx.Conn, cfg *config.Config, log zerolog.Logger) ([]*relay.Table, error) {
	lines, err := check.Start(ctx, conn, cfg, sinks(cfg))
	if err != nil {
		return nil, err
	}
	tables, err := openTables(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		level := zerolog.WarnLevel
		if line.Level == check.Failure {
			level = zerolog.ErrorLevel
		}
		log.WithLevel(level).Str("check", line.Name).Str("fix", line.Fix).Msg(line.Text)
	}
	return tables, nil
}

// hopeless says that the server answered and that trying again would bring the same answer: wrong password or role
// (class 28), no such database.
func hopeless(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code[:2] == "28" || pg.Code == "3D000")
}
