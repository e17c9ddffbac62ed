package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"pgrelay/internal/check"
	"pgrelay/internal/config"
)

func newCheck(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look at everything that a relay needs and say what to mend",
		Long: "Look at everything that a relay needs: connection, rights, slot, publication,\n" +
			"outboxes, destinations. It goes on after a failure, changes nothing, and says\n" +
			"for each thing that is wrong what to run. Exit 1 if anything failed.",
		Example: "  pgrelay check\n  pgrelay check --json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.check(cmd.Context(), asJSON) },
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) check(ctx context.Context, asJSON bool) error {
	cfg, conn, err := a.load()
	if err != nil {
		return err
	}
	report := check.Run(ctx, check.Input{Config: cfg, Conn: conn, Destinations: a.unopened(ctx, cfg)})
	if err := a.print(asJSON, report, func(p *page) { printReport(p, report) }); err != nil {
		return err
	}
	if n := report.Count(check.Failure); n > 0 {
		return fmt.Errorf("%d of %d checks failed", n, len(report.Lines))
	}
	return nil
}

// unopened makes the publishers, each with an ear for what it logs.
func (a *app) unopened(ctx context.Context, cfg *config.Config) []check.Destination {
	var all []check.Destination
	for _, sink := range sinks(cfg) {
		d := check.Destination{Sink: sink, Config: cfg.Destinations[sink.Name]}
		var notes []string
		log := zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(_ *zerolog.Event, level zerolog.Level, text string) {
			if level >= zerolog.WarnLevel {
				notes = append(notes, text)
			}
		}))
		d.Notes = func() []string { return notes }
		d.Publisher, d.Err = newPublisher(ctx, d.Config, a.stdout, log)
		all = append(all, d)
	}
	return all
}

var levelStyles = map[check.Level]style{check.OK: green, check.Warning: yellow, check.Failure: red, check.Skipped: faint}

func printReport(p *page, r check.Report) {
	var rows [][]cell
	for _, l := range r.Lines {
		rows = append(rows, cells(cell{text: string(l.Level), style: levelStyles[l.Level]}, l.Name, l.Text))
		if l.Fix != "" {
			rows = append(rows, cells("", "", cell{text: "→ " + l.Fix, whole: true}))
		}
	}
	p.list(rows)
	p.line("\n%d ok, %d to know, %d failed, %d skipped",
		r.Count(check.OK), r.Count(check.Warning), r.Count(check.Failure), r.Count(check.Skipped))
}
