package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/pgtest"
)

// configuration is what the demo runs with, and what it prints.
//
//go:embed pgrelay.yaml
var configuration string

const database = "postgres"

// stage is what the demo plays on.
type stage struct {
	page    *page
	server  *pgtest.Server
	queue   *queue
	conn    *pgx.Conn
	pgrelay program
	relay   *daemon                 // nil while it doesn't run
	end     context.CancelCauseFunc // ends the demo
	ledger  ledger
}

// open starts the servers. What it started is for close to end, also when it fails.
func (s *stage) open(ctx context.Context, binary string) (err error) {
	if s.pgrelay.path, err = filepath.Abs(binary); err != nil {
		return fmt.Errorf("finding pgrelay: %w", err)
	}
	s.page.text("Starting a throw-away PostgreSQL and a local SQS with the queue %s.", queueName)
	if s.server, err = pgtest.Launch(pgtest.Options{}); err != nil {
		return err
	}
	if s.queue, err = openQueue(ctx); err != nil {
		return err
	}
	if s.conn, err = s.connect(ctx); err != nil {
		return err
	}
	if _, err = s.conn.Exec(ctx, schema); err != nil {
		return fmt.Errorf("creating the tables of bookings: %w", err)
	}
	if s.pgrelay.dir, err = os.MkdirTemp("", "pgrelay-demo-"); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	if err = os.WriteFile(filepath.Join(s.pgrelay.dir, "pgrelay.yaml"), []byte(configuration), 0o600); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	// Nothing of the caller's environment: no profile of his can lead to the real AWS.
	s.pgrelay.env = []string{
		"DATABASE_URL=" + s.server.URL(database), "SQS_ENDPOINT=" + s.queue.url,
		"AWS_ACCESS_KEY_ID=demo", "AWS_SECRET_ACCESS_KEY=demo", "AWS_EC2_METADATA_DISABLED=true",
	}
	return nil
}

// close stops and removes everything, in the order in which things lean on each other.
func (s *stage) close(showLog bool) error {
	var errs []error
	if s.relay != nil {
		_ = s.relay.stop() // the last step checks how it ends
		if showLog {
			errs = append(errs, s.relay.tail())
		}
	}
	if s.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.conn.Close(ctx) // the server goes next
	}
	if s.queue != nil {
		s.queue.close()
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	if s.pgrelay.dir != "" {
		errs = append(errs, os.RemoveAll(s.pgrelay.dir))
	}
	return errors.Join(errs...)
}

func (s *stage) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(s.server.URL(database))
	if err != nil {
		return nil, fmt.Errorf("parsing the server's address: %w", err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	return conn, nil
}

// run shows a command of pgrelay and what it prints.
func (s *stage) run(args ...string) error {
	s.page.command("pgrelay " + strings.Join(args, " "))
	out, err := s.pgrelay.output(args...)
	s.page.output(out)
	return err
}

// exec shows a statement and runs it.
func (s *stage) exec(ctx context.Context, sql string) error {
	s.page.sql(sql)
	if _, err := s.conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("running SQL: %w", err)
	}
	return nil
}

// until asks a question of SQL until its answer is yes.
func (s *stage) until(ctx context.Context, sql string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var yes bool
		if err := s.conn.QueryRow(ctx, sql).Scan(&yes); err != nil {
			return fmt.Errorf("running SQL: %w", err)
		}
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
