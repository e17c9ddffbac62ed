package pgtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const adminTimeout = 90 * time.Second

// Database is a database that one test has for itself.
type Database struct {
	URL    string // over TCP, as the superuser postgres
	Name   string
	Server *Server
}

// New makes an empty database on the shared server and drops it when the test ends.
func New(t testing.TB) *Database {
	t.Helper()
	return onShared(t, (*Server).NewDatabase)
}

// onShared makes a database on the shared server. Only there does it need to be
// dropped: a server of one's own goes as a whole.
func onShared(t testing.TB, newDatabase func(*Server, testing.TB) *Database) *Database {
	t.Helper()
	s, err := shared.get()
	require.NoError(t, err)
	db := newDatabase(s, t)
	t.Cleanup(func() { require.NoError(t, s.drop(db.Name)) })
	return db
}

// NewDatabase makes an empty database.
func (s *Server) NewDatabase(t testing.TB) *Database {
	t.Helper()
	return s.newDatabase(t, "template0")
}

func (s *Server) newDatabase(t testing.TB, template string) *Database {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.databases.Add(1))
	require.NoError(t, s.admin(func(ctx context.Context, conn *pgx.Conn) error {
		return s.create(ctx, conn, name, template)
	}))
	return &Database{URL: s.url(name), Name: name, Server: s}
}

// create copies files, as servers before 15 do anyway: copying through the WAL takes no
// less time here, and would show up in the slots of the tests next door.
func (s *Server) create(ctx context.Context, conn *pgx.Conn, name, template string) error {
	sql := "CREATE DATABASE " + name + " TEMPLATE " + template
	if s.Version >= 15 {
		sql += " STRATEGY file_copy"
	}
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("creating database %s: %w", name, err)
	}
	return nil
}

// drop removes a database with the slots that pin it and the sessions that use it.
func (s *Server) drop(name string) error {
	return s.admin(func(ctx context.Context, conn *pgx.Conn) error {
		if err := dropSlots(ctx, conn, name); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("dropping database %s: %w", name, err)
		}
		return nil
	})
}

// dropSlots ends whoever uses a slot of the database and drops those that are free,
// until none is left.
func dropSlots(ctx context.Context, conn *pgx.Conn, database string) error {
	return poll(ctx, func() error {
		var left int
		err := conn.QueryRow(ctx, `SELECT count(CASE WHEN active_pid IS NULL THEN pg_drop_replication_slot(slot_name)::text
			ELSE pg_terminate_backend(active_pid)::text END) FROM pg_replication_slots WHERE database = $1`, database).Scan(&left)
		if err == nil && left > 0 {
			err = fmt.Errorf("dropping the slots of database %s: %d left", database, left)
		}
		return err
	})
}

// admin runs work on a connection to the database postgres: one that is idle, or a new one.
func (s *Server) admin(work func(context.Context, *pgx.Conn) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	var conn *pgx.Conn
	select {
	case conn = <-s.idle:
	default:
		if conn, err = pgx.Connect(ctx, s.url("postgres")); err != nil {
			return fmt.Errorf("connecting to the server: %w", err)
		}
	}
	if err = work(ctx, conn); err == nil {
		select {
		case s.idle <- conn:
			return nil
		default:
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// Connect opens a connection that is closed when the test ends.
func (db *Database) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		defer cancel()
		// The test may have broken it on purpose.
		_ = conn.Close(ctx)
	})
	return conn
}

// Exec runs one statement, or without args any number of them, on a connection of
// its own. It works in cleanups too.
func (db *Database) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.URL)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, sql, args...)
	require.NoError(t, errors.Join(err, conn.Close(ctx)))
}
