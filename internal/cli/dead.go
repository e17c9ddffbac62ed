package cli

import (
	"context"
	"errors"
	"fmt"

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
		newDeadChange(a, "retry", "Send dead letters again, with their attempts forgotten", "will be sent again", (*relay.Table).RetryDead),
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
				return a.print(asJSON, letters, func(p *page) { printDead(p, letters) })
			})
		},
	}
	a.tableFlag(cmd, &table, "only of this outbox")
	cmd.Flags().StringVar(&reason, "reason", "", "only with this reason")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printDead(p *page, letters []relay.DeadLetter) {
	if len(letters) == 0 {
		p.line("no dead letters")
		return
	}
	rows := [][]cell{cells("TABLE", "ID", "EVENT ID", "KIND", "ATTEMPTS", "REASON", "DEAD SINCE")}
	for _, l := range letters {
		rows = append(rows, cells(l.Table, l.ID, l.EventID, l.Kind, l.Attempts, l.Reason, ago(l.Since)))
	}
	p.table(rows)
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
				return a.print(asJSON, l, func(p *page) {
					p.list([][]cell{
						cells("table", l.Table), cells("id", l.ID), cells("event id", l.EventID), cells("kind", l.Kind),
						cells("attempts", l.Attempts), cells("reason", l.Reason), cells("detail", l.Detail), cells("since", moment(l.Since)),
					})
					if l.Gone {
						p.line("its row has been deleted from the outbox")
					}
				})
			})
		},
	}
	a.oneRow(cmd, &table, &id, &asJSON)
	return cmd
}

type deadChange func(t *relay.Table, ctx context.Context, conn *pgx.Conn, s relay.DeadSelection) (int, error)

func newDeadChange(a *app, use, short, done string, change deadChange) *cobra.Command {
	var table, reason string
	var ids []string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		Example: fmt.Sprintf("  pgrelay dead %[1]s --table pgrelay.outbox_events --id 4711\n"+
			"  pgrelay dead %[1]s --table pgrelay.outbox_events --all --reason unknown_kind", use),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case all && len(ids) > 0:
				return &usageError{errors.New("--id and --all exclude each other")}
			case !all && len(ids) == 0:
				return &usageError{errors.New("say which: --id, or --all (with --reason if you like)")}
			case reason != "" && !all:
				return &usageError{errors.New("--reason goes with --all")}
			}
			return a.withSession(cmd.Context(), func(s *session) error {
				t, err := s.table(table)
				if err != nil {
					return err
				}
				tell, end := a.progress()
				n, err := change(t, cmd.Context(), s.conn, relay.DeadSelection{IDs: ids, Reason: reason, Progress: tell})
				end()
				if err != nil {
					return err
				}
				return a.print(asJSON, relay.Change{Rows: n}, func(p *page) { p.line("%d dead letter(s) of %s %s", n, t.Name, done) })
			})
		},
	}
	f := cmd.Flags()
	a.tableFlag(cmd, &table, "outbox, as configured or qualified")
	f.StringArrayVar(&ids, "id", nil, "key of a row; may be repeated")
	f.BoolVar(&all, "all", false, "all dead letters of the outbox")
	f.StringVar(&reason, "reason", "", "with --all: only those with this reason")
	jsonFlag(cmd, &asJSON)
	required(cmd, "table")
	return cmd
}
