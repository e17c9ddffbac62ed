package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgrelay/internal/proctest"
)

const (
	// Recovery after a crash on a busy machine takes longest.
	startTimeout = time.Minute
	stopTimeout  = time.Minute
	pollInterval = 10 * time.Millisecond
)

// postmaster is one run of a server process.
type postmaster struct {
	process *os.Process
	exited  chan struct{}
	err     error // why it ended; read after exited is closed
}

// launch starts the process, which ends with this one.
func launch(bin, dir string) (*postmaster, error) {
	// No context ends it: stop does, and the death of this process.
	cmd, err := command(context.Background(), dir, filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the server's log: %w", err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	// A Ctrl-C in the terminal is for who started the server, and who still uses it.
	cmd.SysProcAttr.Setpgid = true

	p := &postmaster{exited: make(chan struct{})}
	err = proctest.Start(cmd, func(err error) {
		p.err = err
		close(p.exited)
	})
	_ = log.Close()
	if err != nil {
		return nil, fmt.Errorf("starting postgres: %w", err)
	}
	p.process = cmd.Process
	return p, nil
}

// awaitReady waits until the server takes connections and returns its version.
func (p *postmaster) awaitReady(url string) (version string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		conn, err := pgconn.Connect(ctx, url)
		if err == nil {
			version = conn.ParameterStatus("server_version")
			return version, conn.Close(ctx)
		}
		select {
		case <-p.exited:
			return "", fmt.Errorf("postgres ended while starting: %w", p.err)
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for postgres: %w", err)
		case <-tick.C:
		}
	}
}

// stop ends the process and waits for it. One that doesn't end in time is killed.
func (p *postmaster) stop(mode StopMode) error {
	if err := p.process.Signal(syscall.Signal(mode)); err != nil {
		return fmt.Errorf("signalling postgres: %w", err)
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-p.exited:
		return nil
	case <-late.C:
		_ = p.process.Kill()
		<-p.exited
		return fmt.Errorf("postgres did not stop within %s", stopTimeout)
	}
}

func portFree(port int) bool {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	return l.Close() == nil
}
