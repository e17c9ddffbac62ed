package stage

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"pgrelay/internal/proctest"
)

// stopTimeout is more than pgrelay's own shutdown_timeout, on a busy machine too.
const stopTimeout = time.Minute

// Program runs pgrelay as a user would, in the directory of its configuration.
type Program struct {
	Path string
	Dir  string
	Env  []string
}

// command prepares a child that a Ctrl-C in this terminal doesn't reach: whoever started
// it stops it, in the right order.
func (p Program) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.Path, args...) //nolint:noctx // stop and Pdeathsig end it
	cmd.Dir, cmd.Env = p.Dir, p.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// Output runs a command to its end and gives what it printed.
func (p Program) Output(args ...string) (string, error) {
	cmd, ended := p.command(args...), make(chan error, 1)
	var printed proctest.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err := proctest.Start(cmd, func(err error) { ended <- err })
	if err == nil {
		err = <-ended
	}
	if err != nil {
		return "", fmt.Errorf("running pgrelay %s: %w\n%s", strings.Join(args, " "), err, printed.String())
	}
	return printed.String(), nil
}

// Daemon is a running `pgrelay run`.
type Daemon struct {
	cmd    *exec.Cmd
	log    proctest.Buffer
	exited chan struct{}
	err    error // how it ended
}

// Start runs `pgrelay run` beside the caller. At its end, however it comes, ended is called.
func (p Program) Start(ended context.CancelCauseFunc) (*Daemon, error) {
	d := &Daemon{cmd: p.command("run"), exited: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	err := proctest.Start(d.cmd, func(err error) {
		d.err = err
		ended(errors.New("pgrelay run has ended"))
		close(d.exited)
	})
	if err != nil {
		return nil, fmt.Errorf("starting pgrelay run: %w", err)
	}
	return d, nil
}

// Stop asks the process to drain and waits for its end.
func (d *Daemon) Stop() error {
	d.Signal(syscall.SIGTERM)
	late := time.AfterFunc(stopTimeout, func() { d.Signal(syscall.SIGKILL) })
	defer late.Stop()
	<-d.exited
	if d.err != nil {
		return fmt.Errorf("running pgrelay run: %w", d.err)
	}
	return nil
}

// Kill is kill -9.
func (d *Daemon) Kill() {
	d.Signal(syscall.SIGKILL)
	<-d.exited
}

// Signal sends one to the process, if it still runs.
func (d *Daemon) Signal(s syscall.Signal) { _ = d.cmd.Process.Signal(s) }

// Logged lists the lines of the log so far that have a message.
func (d *Daemon) Logged(message string) (lines []string) {
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, `"message":"`+message+`"`) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// Log is all that the process has written.
func (d *Daemon) Log() string { return d.log.String() }

// Exited is closed when the process has ended.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }
