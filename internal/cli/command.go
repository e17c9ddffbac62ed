package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// session is what a command that talks to the database works with.
type session struct {
	cfg    *config.Config
	conn   *pgx.Conn
	tables []*relay.Table
}

// withSession loads the configuration, connects, opens the outboxes and runs a command's work.
func (a *app) withSession(ctx context.Context, work func(s *session) error) error {
	cfg, config, err := a.load()
	if err != nil {
		return err
	}
	conn, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the work's error is what counts
	// What a person asked for may take longer than the relay's own statements.
	if _, err := conn.Exec(ctx, `SET statement_timeout = '60s'; SET lock_timeout = '10s'`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("setting time-outs: %w", err)
	}
	tables, err := openTables(ctx, conn, cfg)
	if err != nil {
		return err
	}
	return work(&session{cfg: cfg, conn: conn, tables: tables})
}

// table finds an outbox by its name in the configuration or its qualified name.
func (s *session) table(name string) (*relay.Table, error) {
	var known []string
	for i, t := range s.tables {
		if name == t.Name || name == s.cfg.Outboxes[i].Table {
			return t, nil
		}
		known = append(known, t.Name)
	}
	return nil, &relay.NotFoundError{What: fmt.Sprintf("no outbox %q is configured; there are %s", name, strings.Join(known, ", "))}
}

// print writes v as JSON or, by text, for a person.
func (a *app) print(asJSON bool, v any, text func(w *tabwriter.Writer)) error {
	if asJSON {
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	text(w)
	return w.Flush()
}
