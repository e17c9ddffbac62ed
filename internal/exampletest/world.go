package exampletest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/cli"
	"pgrelay/internal/pgtest"
	"pgrelay/internal/smtptest"
	"pgrelay/internal/sqstest"
	"pgrelay/internal/stage"
)

// Patience is how long a test waits for what has to happen: long, for a busy machine.
const Patience = 60 * time.Second

// asProgram, set in its environment, makes the test binary be pgrelay.
const asProgram = "PGRELAY_EXAMPLE_PROGRAM"

// Main is TestMain.
func Main(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main(cli.Program{}))
	}
	pgtest.Main(m)
}

// World is the example's surroundings in one test.
type World struct {
	Conn *pgx.Conn // the producer's
	SQS  *sqstest.TestServer

	t       testing.TB
	db      *pgtest.Database
	program stage.Program
}

// New makes them, with the example's schema and configuration.
func New(t testing.TB, queues ...string) *World {
	t.Helper()
	db := pgtest.Migrated(t)
	w := &World{Conn: db.Connect(t), SQS: sqstest.Start(t), t: t, db: db}
	for _, queue := range queues {
		w.SQS.CreateQueue(queue, nil)
	}
	db.Exec(t, read(t, "schema.sql"))
	w.program = stage.Program{Path: os.Args[0], Dir: t.TempDir(), Env: []string{
		asProgram + "=1", "DATABASE_URL=" + db.URL, "SQS_ENDPOINT=" + w.SQS.URL, "HTTP_ADDR=127.0.0.1:0",
		"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true",
		"GORACE=atexit_sleep_ms=0", // the race detector would make each process end a second later
	}}
	w.write(read(t, "pgrelay.yaml"))
	return w
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func (w *World) file() string { return filepath.Join(w.program.Dir, "pgrelay.yaml") }

func (w *World) write(yaml string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.file(), []byte(yaml), 0o600))
}

// MailServer starts one, which the configuration finds in its environment.
func (w *World) MailServer() *smtptest.Server {
	w.t.Helper()
	s := smtptest.Start(w.t, smtptest.Options{})
	w.program.Env = append(w.program.Env, "SMTP_HOST="+s.Host(), fmt.Sprintf("SMTP_PORT=%d", s.Port()), "SMTP_TLS=none")
	return s
}

// Edit replaces a text that the configuration has exactly once.
func (w *World) Edit(before, after string) {
	w.t.Helper()
	text := read(w.t, w.file())
	require.Equal(w.t, 1, strings.Count(text, before), before)
	w.write(strings.Replace(text, before, after, 1))
}

// Connect opens another session of the producer.
func (w *World) Connect() *pgx.Conn {
	w.t.Helper()
	return w.db.Connect(w.t)
}

// Start runs `pgrelay run`. What is left of it when the test ends is stopped, as an operator would.
func (w *World) Start() *stage.Daemon {
	w.t.Helper()
	d, err := w.program.Start(func(error) {})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		select {
		case <-d.Exited():
		default:
			if err := d.Stop(); err != nil {
				w.t.Error(err)
			}
		}
		if strings.Contains(d.Log(), "DATA RACE") || strings.Contains(d.Log(), "panic:") {
			w.t.Error("the log has a data race or a panic")
		}
		if w.t.Failed() {
			w.t.Logf("pgrelay run:\n%s", d.Log())
		}
	})
	return d
}

// Done runs a command that has to succeed and gives what it printed.
func (w *World) Done(args ...string) string {
	w.t.Helper()
	out, err := w.program.Output(args...)
	require.NoError(w.t, err)
	return out
}

// Says waits until a process has logged a message n times.
func (w *World) Says(d *stage.Daemon, message string, n int) {
	w.t.Helper()
	pgtest.Eventually(w.t, Patience, func() error {
		if got := len(d.Logged(message)); got < n {
			return fmt.Errorf("said %d times", got)
		}
		return nil
	}, "%q is logged %d times", message, n)
}

// Arrive waits until a queue has accepted n messages and returns them all.
func (w *World) Arrive(queue string, n int) []sqstest.Message {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	require.NoError(w.t, w.SQS.Wait(ctx, queue, n))
	return w.SQS.Messages(queue)
}

// Exec runs a statement as the producer.
func (w *World) Exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.Conn.Exec(context.Background(), sql, args...)
	require.NoError(w.t, err)
}

// Strings gives the first column of a query's rows.
func (w *World) Strings(sql string, args ...any) []string {
	w.t.Helper()
	rows, err := w.Conn.Query(context.Background(), sql, args...)
	require.NoError(w.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	return all
}

// Eventually waits until a query's only value is what is wanted.
func (w *World) Eventually(want, sql string, args ...any) {
	w.t.Helper()
	pgtest.Eventually(w.t, Patience, func() error {
		if got := w.Strings(sql, args...); len(got) != 1 || got[0] != want {
			return fmt.Errorf("%q instead of %q", got, want)
		}
		return nil
	}, "%s", sql)
}

// Build makes the program that a runner shows.
func Build(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pgrelay")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "pgrelay/cmd/pgrelay").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}
