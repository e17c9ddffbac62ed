package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// session is what a command that talks to the database works with.
type session struct {
	cfg    *config.Config
	conn   *pgx.Conn
	tables []*relay.Table
}

// withConn loads the configuration, connects and runs a command's work.
func (a *app) withConn(ctx context.Context, work func(cfg *config.Config, conn *pgx.Conn) error) error {
	cfg, config, err := a.load()
	if err != nil {
		return err
	}
	conn, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the work's error is what counts
	return work(cfg, conn)
}

// withSession is withConn for a command about the outboxes, which it opens.
func (a *app) withSession(ctx context.Context, work func(s *session) error) error {
	return a.withConn(ctx, func(cfg *config.Config, conn *pgx.Conn) error {
		// What a person asked for may take longer than the relay's own statements.
		if _, err := conn.Exec(ctx, `SET statement_timeout = '60s'; SET lock_timeout = '10s'`, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("setting time-outs: %w", err)
		}
		tables, err := openTables(ctx, conn, cfg)
		if err != nil {
			return err
		}
		return work(&session{cfg: cfg, conn: conn, tables: tables})
	})
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
func (a *app) print(asJSON bool, v any, text func(p *page)) error {
	if asJSON {
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	p := page{term: terminalOf(a.stdout, a.env)}
	text(&p)
	_, err := io.WriteString(a.stdout, p.String())
	return err
}

func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

// tableFlag adds --table, which shells complete from the configuration.
func (a *app) tableFlag(cmd *cobra.Command, table *string, usage string) {
	cmd.Flags().StringVar(table, "table", "", usage)
	err := cmd.RegisterFlagCompletionFunc("table", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		cfg, err := config.Load(a.configFile, a.env)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, o := range cfg.Outboxes {
			names = append(names, o.Table)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // a flag that is not there, or twice
	}
}

// oneRow adds the flags of commands that are about one row.
func (a *app) oneRow(cmd *cobra.Command, table, id *string, asJSON *bool) {
	a.tableFlag(cmd, table, "outbox, as configured or qualified")
	cmd.Flags().StringVar(id, "id", "", "key of the row")
	jsonFlag(cmd, asJSON)
	required(cmd, "table")
	required(cmd, "id")
}
