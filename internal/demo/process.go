package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is more than pgrelay's own shutdown_timeout.
const stopTimeout = 30 * time.Second

// program runs pgrelay as a user would, in the directory of its configuration.
type program struct {
	path string
	dir  string
	env  []string
}

// command prepares a child that a Ctrl-C in this terminal doesn't reach: whoever started
// it stops it, in the right order.
func (p program) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.path, args...) //nolint:noctx // stop and Pdeathsig end it
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// output runs a command to its end and gives what it printed.
func (p program) output(args ...string) (string, error) {
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running pgrelay %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// daemon is a running `pgrelay run`.
type daemon struct {
	cmd    *exec.Cmd
	log    string // the file that it logs to
	exited chan error
	ended  context.CancelCauseFunc
}

// start runs `pgrelay run` beside the demo. Should it end by itself, ended is called.
func (p program) start(ended context.CancelCauseFunc) (*daemon, error) {
	d := &daemon{cmd: p.command("run"), log: filepath.Join(p.dir, "pgrelay.log"), exited: make(chan error, 1), ended: ended}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, fmt.Errorf("creating pgrelay's log: %w", err)
	}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	err = d.cmd.Start()
	_ = log.Close() // the child has its own
	if err != nil {
		return nil, fmt.Errorf("starting pgrelay run: %w", err)
	}
	go func() {
		err := d.cmd.Wait()
		ended(errors.New("pgrelay run has ended"))
		d.exited <- err
	}()
	return d, nil
}

// stop asks the process to drain and waits for its end.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended: Wait says how
	late := time.AfterFunc(stopTimeout, func() { _ = d.cmd.Process.Kill() })
	defer late.Stop()
	if err := <-d.exited; err != nil {
		return fmt.Errorf("running pgrelay run: %w", err)
	}
	return nil
}

// tail gives the end of the log as an error: what went wrong is most likely there.
func (d *daemon) tail() error {
	const most = 4096
	log, err := os.ReadFile(d.log)
	if err != nil {
		return fmt.Errorf("reading pgrelay's log: %w", err)
	}
	return fmt.Errorf("pgrelay's log ends with\n%s", log[max(0, len(log)-most):])
}
