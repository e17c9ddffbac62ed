package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"pgrelay/relay"
)

func newSends(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sends",
		Short: "List claims of sends that go at most once, and decide the uncertain ones",
		Example: "  pgrelay sends list --uncertain\n" +
			"  pgrelay sends resolve --event 7f0c2a4e-… --recipient ann@example.com --sent",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSendsList(a), newSendsResolve(a))
	return cmd
}

func newSendsList(a *app) *cobra.Command {
	var uncertain, asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List claims of sends, the newest first",
		Long: "List the newest claims of sends that go at most once. With --uncertain: all\n" +
			"whose outcome is unknown and whose event is not on its way any more.",
		Example: "  pgrelay sends list --uncertain --json", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd.Context(), func(s *session) error {
				sends, err := relay.ListSends(cmd.Context(), s.conn, s.tables, uncertain)
				if err != nil {
					return err
				}
				if sends == nil {
					sends = []relay.Send{}
				}
				return a.print(asJSON, sends, func(p *page) { printSends(p, sends, uncertain) })
			})
		},
	}
	cmd.Flags().BoolVar(&uncertain, "uncertain", false, "only those of which nobody knows whether they arrived")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printSends(p *page, sends []relay.Send, uncertain bool) {
	switch {
	case len(sends) == 0 && uncertain:
		p.line("no uncertain sends")
		return
	case len(sends) == 0:
		p.line("no sends")
		return
	}
	rows := [][]cell{cells("EVENT ID", "RECIPIENT", "TYPE", "STATE", "CLAIMED", "SENT", "TABLE", "ID", "LAST ERROR")}
	for _, s := range sends {
		claimed, sent := "-", "-"
		if s.ClaimedAt != nil {
			claimed = moment(*s.ClaimedAt)
		}
		if s.SentAt != nil {
			sent = moment(*s.SentAt)
		}
		rows = append(rows, cells(s.EventID, s.Recipient, s.Kind, string(s.State), claimed, sent, s.Table, s.ID, s.LastError))
	}
	p.table(rows)
	if !uncertain && len(sends) >= relay.SendsShown {
		p.line("the newest %d of each table are shown", relay.SendsShown)
	}
}

func newSendsResolve(a *app) *cobra.Command {
	var d relay.Decision
	var retry, asJSON bool
	cmd := &cobra.Command{
		Use: "resolve", Short: "Say of uncertain sends whether they arrived",
		Long: "Say of an event's sends of which nobody knows whether they arrived. --sent: they\n" +
			"did, and the row is published when none is left. --retry: they did not,\n" +
			"and a running relay sends them again at once; who has theirs gets nothing.",
		Example: "  pgrelay sends resolve --event 7f0c2a4e-… --sent\n" +
			"  pgrelay sends resolve --event 7f0c2a4e-… --recipient ann@example.com --retry",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.Sent == retry {
				return &usageError{errors.New("say --sent or --retry")}
			}
			return a.withSession(cmd.Context(), func(s *session) error {
				done, err := relay.ResolveSends(cmd.Context(), s.conn, s.tables, d)
				if err != nil {
					return err
				}
				return a.print(asJSON, done, func(p *page) { printResolved(p, d, done) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.EventID, "event", "", "event id")
	f.StringVar(&d.Recipient, "recipient", "", "only this recipient; for queues the destination's name")
	f.BoolVar(&d.Sent, "sent", false, "it arrived")
	f.BoolVar(&retry, "retry", false, "it did not arrive: send it again")
	jsonFlag(cmd, &asJSON)
	required(cmd, "event")
	return cmd
}

func printResolved(p *page, d relay.Decision, done relay.Resolved) {
	if d.Sent {
		p.line("%d send(s) of event %s marked as sent", done.Sends, d.EventID)
	} else {
		p.line("%d send(s) of event %s released", done.Sends, d.EventID)
	}
	switch {
	case done.Published > 0:
		p.line("nothing of it is uncertain any more: its row is published")
	case done.Again > 0:
		p.line("its row goes again")
	}
	if done.Left > 0 {
		p.line("%d send(s) of it are still uncertain", done.Left)
	}
}
