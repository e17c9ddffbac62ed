package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// Program is what a build of pgrelay decides.
type Program struct {
	// Version is what `pgrelay version` says; empty: what the Go toolchain noted.
	Version string
	// Wrap, if set, stands between the relay and a destination: crash tests put their hook there.
	Wrap func(name string, pub relay.Publisher) relay.Publisher
}

// Main runs the command line of this process, SIGINT and SIGTERM included, and gives the exit code.
func Main(p Program) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // the second signal quits at once
	}()
	return execute(ctx, os.Args[1:], &app{Program: p, stdout: os.Stdout, stderr: os.Stderr, env: os.LookupEnv})
}

// app is what commands need of the process around them.
type app struct {
	Program
	stdout, stderr io.Writer
	env            func(string) (string, bool)
	configFile     string
	started        bool // the command line was understood
}

// execute runs one command line and gives the exit code.
func execute(ctx context.Context, args []string, a *app) int {
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(a.stderr, "pgrelay: %s\n", describe(err))
	var usage *usageError
	var problems config.Problems
	if !a.started || errors.As(err, &usage) || errors.As(err, &problems) {
		return exitUsage
	}
	return exitFailed
}

// describe gives an error's text without what an error of the server may quote.
func describe(err error) string {
	var problems config.Problems
	if errors.As(err, &problems) {
		return fmt.Sprintf("the configuration has %d problem(s):\n%s", len(problems), problems)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == insufficientPrivilege {
		return err.Error() + "; docs/rights.md has the rights that each command needs"
	}
	return err.Error()
}

const insufficientPrivilege = "42501"

// usageError says that the command line is wrong.
type usageError struct{ err error }

// Error implements error.
func (e *usageError) Error() string { return e.err.Error() }

// Unwrap gives what the parser said.
func (e *usageError) Unwrap() error { return e.err }

// noArgs refuses arguments as a wrong command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("%q takes no argument %q; `%s --help` shows how", cmd.CommandPath(), args[0], cmd.CommandPath())}
	}
	return nil
}

// required refuses a command line without the flag.
func required(cmd *cobra.Command, flag string) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed(flag) {
			return &usageError{fmt.Errorf("--%s is missing; `%s --help` shows how", flag, cmd.CommandPath())}
		}
		if before == nil {
			return nil
		}
		return before(cmd, args)
	}
}
