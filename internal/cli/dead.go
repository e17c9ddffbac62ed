package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"pgrelay/relay"
)

func newDead(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dead",
		Short:   "List, show, retry or discard dead letters",
		Example: "  pgrelay dead list\n  pgrelay dead retry --table pgrelay.outbox_events --all --reason invalid_characters",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDeadList(a), newDeadShow(a),
		newDeadChange(a, "retry", "Send dead letters again, with their attempts forgotten", "sent again", (*relay.Table).RetryDead),
		newDeadChange(a, "discard", "Forget dead letters: their rows are never sent", "discarded", (*relay.Table).DiscardDead))
	return cmd
}

func newDeadList(a *app) *cobra.Command {
	var table, reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, the oldest first", Example: "  pgrelay dead list --json", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd.Context(), func(s *session) error {
				letters, err := s.dead(cmd.Context(), table, relay.DeadSelection{Reason: reason})
				if err != nil {
					return err
				}
				return a.print(asJSON, letters, func(w *tabwriter.Writer) {
					if len(letters) == 0 {
						fmt.Fprintln(w, "no dead letters")
						return
					}
					fmt.Fprintln(w, "TABLE\tID\tEVENT ID\tKIND\tATTEMPTS\tREASON\tSINCE")
					for _, l := range letters {
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", l.Table, l.ID, l.EventID, l.Kind, l.Attempts, l.Reason, l.Since.Local().Format(time.DateTime))
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&table, "table", "", "only of this outbox")
	cmd.Flags().StringVar(&reason, "reason", "", "only with this reason")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// dead lists the dead letters of one outbox, or of all.
func (s *session) dead(ctx context.Context, table string, selection relay.DeadSelection) ([]relay.DeadLetter, error) {
	tables := s.tables
	if table != "" {
		t, err := s.table(table)
		if err != nil {
			return nil, err
		}
		tables = []*relay.Table{t}
	}
	all := []relay.DeadLetter{}
	for _, t := range tables {
		letters, err := t.Dead(ctx, s.conn, selection)
		if err != nil {
			return nil, err
		}
		all = append(all, letters...)
	}
	return all, nil
}

func newDeadShow(a *app) *cobra.Command {
	var table, id string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show", Short: "Show why a row is dead", Example: "  pgrelay dead show --table pgrelay.outbox_events --id 4711", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd.Context(), func(s *session) error {
				letters, err := s.dead(cmd.Context(), table, relay.DeadSelection{IDs: []string{id}})
				if err != nil {
					return err
				}
				l := letters[0]
				return a.print(asJSON, l, func(w *tabwriter.Writer) {
					fmt.Fprintf(w, "table\t%s\nid\t%s\nevent id\t%s\nkind\t%s\nattempts\t%d\nreason\t%s\ndetail\t%s\nsince\t%s\n",
						l.Table, l.ID, l.EventID, l.Kind, l.Attempts, l.Reason, l.Detail, l.Since.Local().Format(time.DateTime))
					if l.Gone {
						fmt.Fprintln(w, "its row has been deleted from the outbox")
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&table, "table", "", "outbox, as configured or qualified")
	cmd.Flags().StringVar(&id, "id", "", "key of the row")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	required(cmd, "table")
	required(cmd, "id")
	return cmd
}

type deadChange func(t *relay.Table, ctx context.Context, conn *pgx.Conn, s relay.DeadSelection) (int, error)

func newDeadChange(a *app, use, short, done string, change deadChange) *cobra.Command {
	var table, reason string
	var ids []string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		Example: fmt.Sprintf("  pgrelay dead %[1]s --table pgrelay.outbox_events --id 4711\n  pgrelay dead %[1]s --table pgrelay.outbox_events --all --reason queue_full", use),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case all == (len(ids) > 0):
				return &usageError{errors.New("say which: --id, or --all (with --reason if you like)")}
			case reason != "" && !all:
				return &usageError{errors.New("--reason goes with --all")}
			}
			return a.withSession(cmd.Context(), func(s *session) error {
				t, err := s.table(table)
				if err != nil {
					return err
				}
				n, err := change(t, cmd.Context(), s.conn, relay.DeadSelection{IDs: ids, Reason: reason})
				if err != nil {
					return err
				}
				return a.print(asJSON, relay.Change{Rows: n}, func(w *tabwriter.Writer) {
					fmt.Fprintf(w, "%d dead letter(s) of %s %s\n", n, t.Name, done)
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&table, "table", "", "outbox, as configured or qualified")
	f.StringArrayVar(&ids, "id", nil, "key of a row; may be repeated")
	f.BoolVar(&all, "all", false, "all dead letters of the outbox")
	f.StringVar(&reason, "reason", "", "with --all: only those with this reason")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	required(cmd, "table")
	return cmd
}
