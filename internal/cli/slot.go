package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

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
	cfg, config, err := a.load()
	if err != nil {
		return err
	}
	conn, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the drop's error is what counts
	slot := cfg.SlotName(conn.Config().Database)
	err = replication.Drop(ctx, conn, slot)
	if errors.Is(err, replication.ErrNoSlot) {
		fmt.Fprintf(a.stdout, "there is no slot %s\n", slot)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "dropped slot %s\n", slot)
	return nil
}
