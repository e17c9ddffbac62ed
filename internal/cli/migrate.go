package cli

import (
	"context"
	"fmt"
	"time"

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
	step := func(use, short string, run func(context.Context, *pgx.ConnConfig) error) {
		cmd.AddCommand(&cobra.Command{
			Use: use, Short: short, Example: "  pgrelay migrate " + use, Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, conn, err := a.load()
				if err != nil {
					return err
				}
				return run(cmd.Context(), conn)
			},
		})
	}
	step("up", "Bring the schema pgrelay up to date", func(ctx context.Context, conn *pgx.ConnConfig) error {
		done, err := migrations.Up(ctx, conn)
		return a.printMigrations("applied", "the schema pgrelay is up to date", done, err)
	})
	step("down", "Drop the schema pgrelay with everything in it: outbox rows, dead letters, claims", func(ctx context.Context, conn *pgx.ConnConfig) error {
		done, err := migrations.Down(ctx, conn)
		return a.printMigrations("took back", "there is no schema pgrelay", done, err)
	})
	step("status", "List the migrations", a.migrateStatus)
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

func (a *app) migrateStatus(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	all, err := migrations.Status(ctx, conn)
	if err != nil {
		return err
	}
	for _, m := range all {
		when := "pending"
		if !m.AppliedAt.IsZero() {
			when = "applied " + m.AppliedAt.Format(time.RFC3339)
		}
		fmt.Fprintf(a.stdout, "%-30s %s\n", m.Name, when)
	}
	return nil
}
