package pgtest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// StandbyName is the standby's application_name and the name of its slot on its primary.
const StandbyName = "standby"

// NewStandby makes a second server that follows this one, by streaming replication with a slot of its own, until it is promoted. Its data
// is a copy, for which this server is stopped and started again. The settings go on top of this server's.
func (s *Server) NewStandby(t testing.TB, settings map[string]string) *Server {
	t.Helper()
	require.NoError(t, s.admin(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SELECT pg_create_physical_replication_slot($1, true)`, StandbyName)
		return err
	}))
	standby := &Server{bin: s.bin}
	var err error
	standby.dir, err = newDirectory()
	require.NoError(t, err)
	standby.SocketDir = standby.dir.path
	s.Stop(t, Fast)
	err = run(standby.dir.path, "cp", "-a", s.dataDir(), standby.dataDir())
	s.Start(t)
	if err == nil {
		err = standby.follow(s, settings)
	}
	if err != nil {
		require.NoError(t, standby.dir.remove())
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.close()) })
	return standby
}

func (s *Server) follow(primary *Server, settings map[string]string) error {
	// The primary's slots are not the standby's.
	err := run(s.dir.path, "sh", "-c", "rm -rf data/pg_replslot/* && touch data/standby.signal")
	if err != nil {
		return err
	}
	host, port, _ := strings.Cut(primary.Addr, ":")
	all := map[string]string{
		"unix_socket_directories": s.SocketDir,
		"primary_conninfo":        fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres application_name=%s", host, port, StandbyName),
		"primary_slot_name":       StandbyName,
		"hot_standby_feedback":    "on",
	}
	maps.Copy(all, settings)
	if err := s.configure(all); err != nil {
		return err
	}
	return s.startOnFreePort()
}

// Promote makes a standby a primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	require.NoError(t, s.admin(func(ctx context.Context, conn *pgx.Conn) error {
		var promoted bool
		err := conn.QueryRow(ctx, `SELECT pg_promote()`).Scan(&promoted)
		if err == nil && !promoted {
			err = fmt.Errorf("the standby was not promoted in time\n%s", s.logTail())
		}
		return err
	}))
}
