package cli

import (
	"cmp"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"pgrelay/internal/config"
	"pgrelay/internal/status"
)

func newStatus(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show slot, leader and the rows of each outbox", Example: "  pgrelay status --json", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd.Context(), func(s *session) error {
				st, err := status.Read(cmd.Context(), s.conn, slotName(s.cfg, s.conn.Config().Database), s.tables)
				if err != nil {
					return err
				}
				return a.print(asJSON, st, func(w *tabwriter.Writer) { printStatus(w, st) })
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// slotName is the slot's name, empty where replication is off.
func slotName(cfg *config.Config, database string) string {
	if !cfg.Replication.Enabled {
		return ""
	}
	return cfg.SlotName(database)
}

func printStatus(w *tabwriter.Writer, st status.Status) {
	fmt.Fprintf(w, "slot\t%s\n", slotText(st.Slot))
	switch {
	case st.Leader.Instance == "":
		fmt.Fprintln(w, "leader\tnone yet")
	case st.Leader.Alive:
		fmt.Fprintf(w, "leader\t%s, epoch %d\n", st.Leader.Instance, st.Leader.Epoch)
	default:
		fmt.Fprintf(w, "leader\tnone since %s (was %s)\n", time.Duration(st.Leader.SeenSeconds*float64(time.Second)).Round(time.Second), st.Leader.Instance)
	}
	fmt.Fprintln(w, "\nOUTBOX\tPENDING\tDEFERRED\tPROCESSING\tRETRYING\tDEAD\tUNCERTAIN\tOLDEST")
	for _, c := range st.Outboxes {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", c.Table, c.Pending, c.Deferred, c.Processing, c.Retrying, c.Dead, c.Uncertain, c.Oldest.Round(time.Second))
	}
}

func slotText(s status.Slot) string {
	switch {
	case !s.Wanted:
		return "not wanted (replication.enabled is false)"
	case !s.Exists:
		return s.Name + " does not exist; a running relay makes it"
	case s.Lost:
		return s.Name + " is lost (" + cmp.Or(s.LostReason, "PostgreSQL removed WAL that it needs") + "); a running relay replaces it"
	}
	text := fmt.Sprintf("%s, lag %s, retained WAL %s", s.Name, bytes(s.LagBytes), bytes(s.RetainedBytes))
	if !s.Active {
		text += ", nobody reads it"
	}
	return text
}

func bytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
