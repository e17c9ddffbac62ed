package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

const (
	// table is where the library keeps the versions that were applied.
	table = "pgrelay.migrations"

	// lockID is the advisory lock of those who migrate: "pgrmigr" in ASCII. The library's
	// own would make us wait for the user's migrations, and the leader's for a relay that runs.
	lockID = 0x7067726d696772

	// leaderLock is the one that a relay holds while it leads (package relay).
	leaderLock = 0x706772656c6179

	// Somebody else's migration may take its time; after two minutes a person should look.
	lockSeconds = 120

	closeTimeout = 5 * time.Second
)

//go:embed sql/*.sql
var files embed.FS

// Migration is one step of the schema.
type Migration struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	AppliedAt time.Time `json:"applied_at,omitzero"` // zero: not applied
}

// Up applies what is missing and returns what it applied, in order, also with an error.
func Up(ctx context.Context, config *pgx.ConnConfig) ([]Migration, error) {
	return locked(ctx, config, func(s *session) ([]Migration, error) {
		if err := s.createSchema(ctx); err != nil {
			return nil, err
		}
		results, err := s.provider.Up(ctx)
		if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
			results = partial.Applied
		}
		if err != nil {
			err = fmt.Errorf("migrating up: %w", err)
		}
		return migrations(results), err
	})
}

// ErrLed says that a relay works with the schema that was to be dropped.
var ErrLed = errors.New("a relay leads in this database; stop it and its standbys first")

// Down reverts everything and drops the schema, with all the data in it. It returns
// what it reverted, in order, also with an error.
func Down(ctx context.Context, config *pgx.ConnConfig) ([]Migration, error) {
	return locked(ctx, config, func(s *session) ([]Migration, error) {
		if there, err := s.schemaExists(ctx); err != nil || !there {
			return nil, err
		}
		if err := s.keepLeadersOut(ctx); err != nil {
			return nil, err
		}
		results, err := s.provider.DownTo(ctx, 0)
		if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
			results = partial.Applied
		}
		if err != nil {
			return migrations(results), fmt.Errorf("migrating down: %w", err)
		}
		return migrations(results), s.dropSchema(ctx)
	})
}

// session is a connection that holds the lock, and the library's provider, which takes
// another one from the same pool.
type session struct {
	conn     *sql.Conn
	provider *goose.Provider
}

func locked(ctx context.Context, config *pgx.ConnConfig, work func(*session) ([]Migration, error)) (done []Migration, err error) {
	db := stdlib.OpenDB(*connConfig(config))
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	// It asks each second and doesn't wait inside the server, where a waiting statement
	// would hold up every CREATE INDEX CONCURRENTLY of the one that it waits for.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(1, lockSeconds))
	if err != nil {
		return nil, fmt.Errorf("setting up the migration lock: %w", err)
	}
	if err := locker.SessionLock(ctx, conn); err != nil {
		return nil, fmt.Errorf("waiting for another migration: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, locker.SessionUnlock(ctx, conn))
	}()

	provider, err := newProvider(db)
	if err != nil {
		return nil, err
	}
	return work(&session{conn: conn, provider: provider})
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	sub, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, fmt.Errorf("opening the embedded migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, sub,
		goose.WithTableName(table), goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("reading the embedded migrations: %w", err)
	}
	return provider, nil
}

// connConfig pins what the migrations and the library's time stamps depend on, and what a role may have set against its queries. A
// lock_timeout is left alone: it protects those who write into the tables. What is migrated is made again by migrating again, so no
// commit waits for a standby, which may be absent.
func connConfig(config *pgx.ConnConfig) *pgx.ConnConfig {
	c := config.Copy()
	for name, value := range map[string]string{
		"search_path": "pg_catalog", "timezone": "UTC", "standard_conforming_strings": "on",
		"default_transaction_read_only": "off", "default_transaction_isolation": "read committed",
		"statement_timeout": "0", "idle_in_transaction_session_timeout": "0", "synchronous_commit": "local",
	} {
		maps.DeleteFunc(c.RuntimeParams, func(k, _ string) bool { return strings.EqualFold(k, name) }) // however the URL spells it
		c.RuntimeParams[name] = value
	}
	return c
}

func (s *session) schemaExists(ctx context.Context) (there bool, err error) {
	err = s.conn.QueryRowContext(ctx, "SELECT to_regnamespace('pgrelay') IS NOT NULL").Scan(&there)
	if err != nil {
		return false, fmt.Errorf("looking for schema pgrelay: %w", err)
	}
	return there, nil
}

// keepLeadersOut takes the leader's lock until the session ends, or returns [ErrLed].
func (s *session) keepLeadersOut(ctx context.Context) error {
	var free bool
	if err := s.conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(leaderLock)).Scan(&free); err != nil {
		return fmt.Errorf("looking for a relay that leads: %w", err)
	}
	if !free {
		return ErrLed
	}
	return nil
}

// createSchema looks first, because IF NOT EXISTS asks for CREATE on the database even
// where a DBA has made the schema already.
func (s *session) createSchema(ctx context.Context) error {
	if there, err := s.schemaExists(ctx); err != nil || there {
		return err
	}
	if _, err := s.conn.ExecContext(ctx, "CREATE SCHEMA pgrelay"); err != nil {
		return fmt.Errorf("creating schema pgrelay: %w", err)
	}
	return nil
}

// dropSchema doesn't cascade: what a user has put into the schema is theirs.
func (s *session) dropSchema(ctx context.Context) error {
	if _, err := s.conn.ExecContext(ctx, "DROP TABLE "+table+"; DROP SCHEMA pgrelay"); err != nil {
		return fmt.Errorf("dropping schema pgrelay: %w", err)
	}
	return nil
}

func migrations(results []*goose.MigrationResult) []Migration {
	ms := make([]Migration, 0, len(results))
	for _, r := range results {
		ms = append(ms, Migration{Version: r.Source.Version, Name: path.Base(r.Source.Path)})
	}
	return ms
}
