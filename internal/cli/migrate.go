package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"pgrelay/migrations"
)

func newMigrate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "migrate",
		Short:   "Create, drop or show the schema pgrelay",
		Example: "  pgrelay migrate up\n  pgrelay migrate status",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	step := func(use, short string, run func(context.Context, *pgx.ConnConfig) error) *cobra.Command {
		one := &cobra.Command{
			Use: use, Short: short, Example: "  pgrelay migrate " + use, Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, conn, err := a.load()
				if err != nil {
					return err
				}
				return run(cmd.Context(), conn)
			},
		}
		cmd.AddCommand(one)
		return one
	}
	step("up", "Bring the schema pgrelay up to date", func(ctx context.Context, conn *pgx.ConnConfig) error {
		done, err := migrations.Up(ctx, conn)
		return a.printMigrations("applied", "the schema pgrelay is up to date", done, err)
	})
	step("down", "Drop the schema pgrelay with everything in it: outbox rows, dead letters, claims", func(ctx context.Context, conn *pgx.ConnConfig) error {
		done, err := migrations.Down(ctx, conn)
		return a.printMigrations("took back", "there is no schema pgrelay", done, err)
	})
	var asJSON bool
	list := step("status", "List the migrations", func(ctx context.Context, conn *pgx.ConnConfig) error { return a.migrateStatus(ctx, conn, asJSON) })
	jsonFlag(list, &asJSON)
	return cmd
}

func (a *app) printMigrations(verb, none string, done []migrations.Migration, err error) error {
	for _, m := range done {
		fmt.Fprintln(a.stdout, verb, m.Name)
	}
	if err == nil && len(done) == 0 {
		fmt.Fprintln(a.stdout, none)
	}
	return err
}

func (a *app) migrateStatus(ctx context.Context, config *pgx.ConnConfig, asJSON bool) error {
	conn, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read from
	all, err := migrations.Status(ctx, conn)
	if err != nil {
		return err
	}
	return a.print(asJSON, all, func(p *page) {
		var rows [][]cell
		for _, m := range all {
			when := "pending"
			if !m.AppliedAt.IsZero() {
				when = "applied " + moment(m.AppliedAt)
			}
			rows = append(rows, cells(m.Name, when))
		}
		p.list(rows)
	})
}
