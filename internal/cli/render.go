package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

func newRender(a *app) *cobra.Command {
	var table, id string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "render", Short: "Show the message that a row goes out as, and where it goes",
		Long: "Show the message that a row goes out as, and where it goes, whether or not it\n" +
			"has been published. Nothing is sent, written or locked, and no destination is\n" +
			"called. Exit 1 if the row can't be sent, with the reason.",
		Example: "  pgrelay render --table pgrelay.outbox_events --id 4711\n  pgrelay render --table pgrelay.outbox_events --id 4711 --json | jq -r .body",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.render(cmd.Context(), table, id, asJSON) },
	}
	a.oneRow(cmd, &table, &id, &asJSON)
	return cmd
}

func (a *app) render(ctx context.Context, table, id string, asJSON bool) error {
	return a.withSession(ctx, func(s *session) error {
		t, err := s.table(table)
		if err != nil {
			return err
		}
		destinations, err := a.destinations(ctx, s.cfg, zerolog.Nop())
		if err != nil {
			return err
		}
		defer closeAll(destinations)
		r, err := t.Render(ctx, s.conn, id, destinations)
		if err != nil {
			return err
		}
		if err := a.print(asJSON, r, func(p *page) { printRendered(p, r, s.cfg.Destinations[r.Destination]) }); err != nil {
			return err
		}
		if !asJSON && r.Body != "" {
			// Byte for byte, which the columns above would not keep.
			fmt.Fprintf(a.stdout, "\n%s\n", r.Body)
		}
		if r.Rejection != nil {
			return fmt.Errorf("row %s of %s can't be sent: %w", r.ID, r.Table, r.Rejection)
		}
		return nil
	})
}

func printRendered(p *page, r relay.Rendered, d config.Destination) {
	var rows [][]cell
	line := func(name, value string) {
		if value != "" {
			rows = append(rows, cells(name, cell{text: value, whole: true}))
		}
	}
	line("table", r.Table)
	line("id", r.ID)
	line("kind", r.Kind)
	if r.Destination != "" {
		line("destination", strings.TrimRight(fmt.Sprintf("%s (%s %s", r.Destination, d.Type, cmp.Or(d.Queue, d.Host)), " ")+")")
	}
	line("event id", r.EventID)
	for _, recipient := range r.Recipients {
		line("recipient", printable(recipient))
	}
	line("group", r.Group)
	line("deduplication id", r.DedupID)
	if r.DelaySeconds > 0 {
		line("delay", fmt.Sprintf("%gs", r.DelaySeconds))
	}
	for _, attribute := range r.Attributes {
		line("attribute", attribute.Name+" = "+printable(attribute.Value))
	}
	if r.EventID != "" {
		size := fmt.Sprintf("%d bytes", r.Bytes)
		if d.Type == config.TypeSQS {
			size += ", attributes included; a limit that the queue sets below SQS's 1 MiB is not asked for"
		}
		line("size", size)
	}
	if r.Rejection != nil {
		line("can't be sent", r.Rejection.Error())
	}
	p.list(rows)
}
