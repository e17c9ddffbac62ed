package pgtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/migrations"
)

const migratedTemplate = "migrated"

// Migrated is [New] with the schema pgrelay in place. It costs no more: the schema is
// made once per server and copied.
func Migrated(t testing.TB) *Database {
	t.Helper()
	return onShared(t, (*Server).NewMigrated)
}

// Encoded is [Migrated] in another encoding than UTF-8.
func Encoded(t testing.TB, encoding string) *Database {
	t.Helper()
	return onShared(t, func(s *Server, t testing.TB) *Database {
		t.Helper()
		db := s.newDatabase(t, "template0 ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C'")
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		defer cancel()
		require.NoError(t, migrate(ctx, db.URL))
		return db
	})
}

// NewMigrated makes a database that has the schema pgrelay.
func (s *Server) NewMigrated(t testing.TB) *Database {
	t.Helper()
	if err := s.migrated(); err != nil {
		t.Fatal(err)
	}
	return s.newDatabase(t, migratedTemplate)
}

// makeMigrated prepares the template and closes it: one that somebody is connected to
// can't be copied.
func (s *Server) makeMigrated() error {
	return s.admin(func(ctx context.Context, conn *pgx.Conn) error {
		if err := s.create(ctx, conn, migratedTemplate, "template0"); err != nil {
			return err
		}
		if err := migrate(ctx, s.url(migratedTemplate)); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "ALTER DATABASE "+migratedTemplate+" ALLOW_CONNECTIONS false"); err != nil {
			return fmt.Errorf("closing the template: %w", err)
		}
		return nil
	})
}

func migrate(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parsing a database's address: %w", err)
	}
	_, err = migrations.Up(ctx, config)
	return err
}
