package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pgrelay/relay"
)

func newRepublish(a *app) *cobra.Command {
	var table, since, until string
	var ids, where []string
	var dry, force, asJSON bool
	cmd := &cobra.Command{
		Use:   "republish",
		Short: "Send settled rows again",
		Long: "Send settled rows again, each with a new generation, so that no deduplication\n" +
			"drops it. Conditions are ANDed; times are those of publication. A running\n" +
			"relay takes the rows up at once.",
		Example: "  pgrelay republish --table pgrelay.outbox_events --id 4711 --id 4712\n" +
			"  pgrelay republish --table pgrelay.outbox_events --where ordering_key=customer-7 --dry-run\n" +
			"  pgrelay republish --table pgrelay.outbox_events --since 2026-01-31T10:00:00Z --until 2026-01-31T10:05:00Z",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selection, err := parseSelection(ids, where, since, until)
			if err != nil {
				return &usageError{err}
			}
			return a.withSession(cmd.Context(), func(s *session) error {
				t, err := s.table(table)
				if err != nil {
					return err
				}
				tell, end := a.progress()
				selection.Progress, selection.Force = tell, force
				change, err := t.Republish(cmd.Context(), s.conn, selection, dry)
				end()
				if err != nil {
					return err
				}
				return a.print(asJSON, change, func(p *page) {
					verb := "republished"
					if dry {
						verb = "would be republished"
					}
					p.line("%d row(s) of %s %s", change.Rows, t.Name, verb)
					if change.Kept > 0 {
						p.line("%s", kept(change.Kept, force))
					}
					if len(change.Pending) > 0 {
						p.line("pending anyway: %s", strings.Join(change.Pending, ", "))
					}
				})
			})
		},
	}
	f := cmd.Flags()
	a.tableFlag(cmd, &table, "outbox, as configured or qualified")
	f.StringArrayVar(&ids, "id", nil, "key of a row; may be repeated")
	f.StringArrayVar(&where, "where", nil, "COLUMN=VALUE; may be repeated")
	f.StringVar(&since, "since", "", "published at or after, e.g. 2026-01-31T10:00:00Z")
	f.StringVar(&until, "until", "", "published at or before")
	f.BoolVar(&dry, "dry-run", false, "only count")
	f.BoolVar(&force, "force", false, "also rows whose event is in the outbox's ledger, and sends that arrived: the entries and claims are deleted")
	jsonFlag(cmd, &asJSON)
	required(cmd, "table")
	return cmd
}

// kept says what a republish does not send although it was asked for.
func kept(n int, force bool) string {
	if force {
		return fmt.Sprintf("%d send(s) are not made again, because nobody knows whether they arrived: pgrelay sends list --uncertain", n)
	}
	return fmt.Sprintf("%d send(s) are not made again, because they are claimed; to make again those that arrived, add --force; "+
		"of those of which nobody knows, decide by pgrelay sends resolve", n)
}

func parseSelection(ids, where []string, since, until string) (s relay.Selection, err error) {
	s.IDs = ids
	for _, w := range where {
		column, value, ok := strings.Cut(w, "=")
		if !ok || column == "" {
			return s, fmt.Errorf("--where %s: write COLUMN=VALUE", w)
		}
		s.Where = append(s.Where, relay.Equal{Column: column, Value: value})
	}
	if s.Since, err = parseTime("since", since); err != nil {
		return s, err
	}
	if s.Until, err = parseTime("until", until); err != nil {
		return s, err
	}
	if len(ids) == 0 && len(where) == 0 && since == "" && until == "" {
		return s, errors.New("say which rows: --id, --where, --since or --until")
	}
	return s, nil
}

// parseTime reads RFC 3339, or a local date with or without a time.
func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--%s %s: write a time as 2026-01-31T10:00:00Z, or in local time as 2026-01-31 10:00", flag, text)
}
