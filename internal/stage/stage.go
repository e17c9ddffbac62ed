package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/smtptest"
)

const database = "postgres"

// Stage is what a play goes on.
type Stage struct {
	*Page
	Queues *Queues
	Mail   *smtptest.Server
	Conn   *pgx.Conn // the producer's

	server  *pgtest.Server
	pgrelay Program
	relay   *Daemon                 // nil while it doesn't run
	end     context.CancelCauseFunc // ends the play
}

// open starts the servers. What it started is for close to end, also when it fails.
func (s *Stage) open(ctx context.Context, binary string, p Play) (err error) {
	if s.pgrelay.Path, err = filepath.Abs(binary); err != nil {
		return fmt.Errorf("finding pgrelay: %w", err)
	}
	s.Text("Starting a throw-away PostgreSQL, a local SQS with %s, and a mail server.", strings.Join(p.Queues, ", "))
	if s.server, err = pgtest.Launch(pgtest.Options{}); err != nil {
		return err
	}
	if s.Queues, err = openQueues(ctx, p.Queues); err != nil {
		return err
	}
	if s.Mail, err = smtptest.Launch(ctx); err != nil {
		return err
	}
	if s.Conn, err = s.Connect(ctx); err != nil {
		return err
	}
	if _, err = s.Conn.Exec(ctx, p.Schema); err != nil {
		return fmt.Errorf("creating the tables: %w", err)
	}
	if s.pgrelay.Dir, err = os.MkdirTemp("", "pgrelay-"+p.Name+"-"); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	if err = s.Configure(p.Configuration); err != nil {
		return err
	}
	// Nothing of the caller's environment: no profile of his can lead to the real AWS.
	s.pgrelay.Env = []string{
		"DATABASE_URL=" + s.server.URL(database), "SQS_ENDPOINT=" + s.Queues.URL, "HTTP_ADDR=127.0.0.1:0",
		"SMTP_HOST=" + s.Mail.Host(), fmt.Sprintf("SMTP_PORT=%d", s.Mail.Port()), "SMTP_TLS=none",
		"AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo", "AWS_EC2_METADATA_DISABLED=true",
	}
	return nil
}

// Configure writes pgrelay.yaml.
func (s *Stage) Configure(yaml string) error {
	if err := os.WriteFile(filepath.Join(s.pgrelay.Dir, "pgrelay.yaml"), []byte(yaml), 0o600); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return nil
}

// close stops and removes everything, in the order in which things lean on each other.
func (s *Stage) close(showLog bool) error {
	var errs []error
	if s.relay != nil {
		_ = s.relay.Stop() // End checks how it ends
		if showLog {
			const most = 4096 // what went wrong is most likely at its end
			log := s.relay.Log()
			errs = append(errs, fmt.Errorf("pgrelay's log ends with\n%s", log[max(0, len(log)-most):]))
		}
	}
	if s.Conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Conn.Close(ctx) // the server goes next
	}
	if s.Queues != nil {
		s.Queues.close()
	}
	if s.Mail != nil {
		s.Mail.Close()
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	if s.pgrelay.Dir != "" {
		errs = append(errs, os.RemoveAll(s.pgrelay.Dir))
	}
	return errors.Join(errs...)
}

// Connect opens another session of the producer.
func (s *Stage) Connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, s.server.URL(database))
	if err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	return conn, nil
}

// Begin shows `pgrelay migrate up` and starts `pgrelay run`.
func (s *Stage) Begin(ctx context.Context) (err error) {
	if err := s.Run("migrate", "up"); err != nil {
		return err
	}
	s.Command("pgrelay run &")
	if s.relay, err = s.pgrelay.Start(s.end); err != nil {
		return err
	}
	return s.Until(ctx, "SELECT count(*) > 0 FROM pg_replication_slots WHERE active")
}

// Relay is the running pgrelay.
func (s *Stage) Relay() *Daemon { return s.relay }

// End drains pgrelay and drops its slot.
func (s *Stage) End() error {
	relay := s.relay
	s.relay = nil
	s.Command("kill %1    # SIGTERM: pgrelay drains and exits")
	if err := relay.Stop(); err != nil {
		return err
	}
	return s.Run("slot", "drop")
}

// Run shows a command of pgrelay and what it prints.
func (s *Stage) Run(args ...string) error {
	s.Command("pgrelay " + strings.Join(args, " "))
	out, err := s.pgrelay.Output(args...)
	s.Output(out)
	return err
}

// Exec shows a statement and runs it.
func (s *Stage) Exec(ctx context.Context, sql string) error {
	s.SQL(sql)
	if _, err := s.Conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("running SQL: %w", err)
	}
	return nil
}

// Until asks a question of SQL until its answer is yes.
func (s *Stage) Until(ctx context.Context, sql string) error {
	return s.When(ctx, func() (yes bool, err error) {
		if err = s.Conn.QueryRow(ctx, sql).Scan(&yes); err != nil {
			err = fmt.Errorf("running SQL: %w", err)
		}
		return yes, err
	})
}

// Says waits until pgrelay has logged a message again since it had been logged n times, and shows the line.
func (s *Stage) Says(ctx context.Context, message string, n int) error {
	return s.When(ctx, func() (bool, error) {
		lines := s.relay.Logged(message)
		if len(lines) <= n {
			return false, nil
		}
		s.Output(lines[n])
		return true, nil
	})
}

// When asks until what is asked holds.
func (s *Stage) When(ctx context.Context, holds func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if yes, err := holds(); err != nil || yes {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
