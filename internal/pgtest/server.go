package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// StopMode is how a server is told to stop.
type StopMode syscall.Signal

// PostgreSQL's shutdown modes: Smart waits for the clients, Fast ends their sessions,
// Immediate is a crash that the next start recovers from.
const (
	Smart     = StopMode(syscall.SIGTERM)
	Fast      = StopMode(syscall.SIGINT)
	Immediate = StopMode(syscall.SIGQUIT)
)

// Options are what a server of one's own may differ in.
type Options struct {
	// Settings go into postgresql.conf on top of the defaults of this package.
	Settings map[string]string
}

// Server is a PostgreSQL server. It keeps its address over restarts.
type Server struct {
	Addr      string // host:port on loopback
	SocketDir string // the directory of its unix socket
	Version   int    // major version

	bin       string
	dir       *directory
	port      int
	process   *postmaster // nil while stopped
	databases atomic.Int64
	migrated  func() error // makes the template database once
	// idle are connections that admin keeps, as each costs the server a process. Only the shared server has them: nobody stops it.
	idle chan *pgx.Conn
}

// defaults suit tests: logical decoding works, there is room for many of them at
// once, and nothing waits for a disk.
var defaults = map[string]string{
	"listen_addresses":      "127.0.0.1",
	"wal_level":             "logical",
	"max_connections":       "300",
	"max_wal_senders":       "100",
	"max_replication_slots": "200",
	"shared_buffers":        "64MB",
	"fsync":                 "off",
}

// StartServer starts a server that only this test uses; it is stopped when the test ends.
func StartServer(t testing.TB, opts Options) *Server {
	t.Helper()
	s, err := newServer(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

func newServer(opts Options) (_ *Server, err error) {
	s := &Server{}
	s.migrated = sync.OnceValue(s.makeMigrated)
	if s.bin, err = binDir(); err != nil {
		return nil, err
	}
	if s.dir, err = newDirectory(); err != nil {
		return nil, err
	}
	s.SocketDir = s.dir.path
	if err := s.init(opts); err != nil {
		return nil, errors.Join(err, s.dir.remove())
	}
	return s, nil
}

func (s *Server) init(opts Options) error {
	err := run(s.dir.path, filepath.Join(s.bin, "initdb"), "--pgdata="+s.dataDir(), "--username=postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	if err != nil {
		return err
	}
	settings := maps.Clone(defaults)
	maps.Copy(settings, opts.Settings)
	settings["unix_socket_directories"] = s.SocketDir
	if err := s.configure(settings); err != nil {
		return err
	}
	return s.startOnFreePort()
}

// configure appends to postgresql.conf and does not use -c, which ALTER SYSTEM could
// not override.
func (s *Server) configure(settings map[string]string) error {
	var conf bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(s.dataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("opening postgresql.conf: %w", err)
	}
	_, err = f.Write(conf.Bytes())
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing postgresql.conf: %w", err)
	}
	return nil
}

// startOnFreePort picks ports below the range from which the kernel serves outgoing
// connections, so that the port is still free when the server is started again.
// Another server may take it between the look and the start: then the next is tried.
func (s *Server) startOnFreePort() error {
	for {
		s.port = 20000 + rand.IntN(12000)
		if !portFree(s.port) {
			continue
		}
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
		if err := s.configure(map[string]string{"port": strconv.Itoa(s.port)}); err != nil {
			return err
		}
		if err := s.start(); err == nil || portFree(s.port) {
			return err
		}
	}
}

func (s *Server) start() error {
	p, err := launch(s.bin, s.dir.path)
	if err != nil {
		return err
	}
	version, err := p.awaitReady(s.url("postgres"))
	if err != nil {
		select {
		case <-p.exited:
		default:
			err = errors.Join(err, p.stop(Immediate))
		}
		return fmt.Errorf("%w\n%s", err, s.logTail())
	}
	s.process = p
	return s.checkVersion(version)
}

func (s *Server) checkVersion(version string) error {
	major, _, _ := strings.Cut(strings.Fields(version)[0], ".")
	var err error
	if s.Version, err = strconv.Atoi(major); err != nil {
		return fmt.Errorf("reading the server's version: %w", err)
	}
	if want := os.Getenv("PGRELAY_TEST_PGVERSION"); want != "" && want != major {
		return errors.Join(fmt.Errorf("the server is PostgreSQL %s, PGRELAY_TEST_PGVERSION asks for %s", major, want), s.stop(Fast))
	}
	return nil
}

// Start starts the server again and waits until it takes connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	require.Nil(t, s.process, "the server is running")
	require.NoError(t, s.start())
}

// Stop ends the server and waits for its end.
func (s *Server) Stop(t testing.TB, mode StopMode) {
	t.Helper()
	require.NotNil(t, s.process, "the server is stopped")
	require.NoError(t, s.stop(mode))
}

// Restart stops the server the fast way and starts it again.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t, Fast)
	s.Start(t)
}

// Kill crashes the server: what it had not written is lost, the next Start recovers.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.Stop(t, Immediate)
}

// KillBackend is kill -9 of the server process of a session whose application_name is like a pattern, as the kernel does when memory is
// short: the postmaster ends all others and recovers. It waits until the server takes connections again.
func (s *Server) KillBackend(t testing.TB, application string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	require.NoError(t, err)
	defer conn.Close(ctx) //nolint:errcheck // the server has ended it
	Eventually(t, startTimeout, func() error {
		var pid int
		err := conn.QueryRow(ctx, `SELECT pid FROM pg_stat_activity WHERE application_name LIKE $1 ORDER BY random() LIMIT 1`, application).Scan(&pid)
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	}, "a session of %s is killed", application)
	Eventually(t, startTimeout, func() bool { return conn.Ping(ctx) != nil }, "all sessions end")
	_, err = s.process.awaitReady(s.url("postgres"))
	require.NoError(t, err)
}

func (s *Server) stop(mode StopMode) error {
	p := s.process
	s.process = nil
	return p.stop(mode)
}

// close throws the server away; nobody needs a checkpoint any more.
func (s *Server) close() error {
	var err error
	if s.process != nil {
		err = s.stop(Immediate)
	}
	return errors.Join(err, s.dir.remove())
}

func (s *Server) url(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", s.Addr, database)
}

func (s *Server) dataDir() string { return filepath.Join(s.dir.path, "data") }

// logTail is the end of the server's log, which says why it did not start.
func (s *Server) logTail() string {
	const most = 4096
	log, err := os.ReadFile(filepath.Join(s.dir.path, "log"))
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}
