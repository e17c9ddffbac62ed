package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"pgrelay/internal/config"
	"pgrelay/replication"
)

func newSlot(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "slot", Short: "Manage the replication slot", Example: "  pgrelay slot drop", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "drop", Short: "Drop the replication slot, e.g. of a relay that is stopped for good", Example: "  pgrelay slot drop", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dropSlot(cmd.Context()) },
	})
	return cmd
}

func (a *app) dropSlot(ctx context.Context) error {
	return a.withConn(ctx, func(cfg *config.Config, conn *pgx.Conn) error {
		slot := cfg.SlotName(conn.Config().Database)
		err := replication.Drop(ctx, conn, slot)
		switch {
		case errors.Is(err, replication.ErrNoSlot):
			fmt.Fprintf(a.stdout, "there is no slot %s\n", slot)
			return nil
		case err != nil:
			return err
		}
		fmt.Fprintf(a.stdout, "dropped slot %s\n", slot)
		return nil
	})
}
