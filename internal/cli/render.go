package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

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
		Long: "Show the message that a row goes out as, and where it goes, whether or not it has been published. Nothing is sent,\n" +
			"written or locked, and no destination is called. Exit 1 if the row can never be sent, with the reason.",
		Example: "  pgrelay render --table pgrelay.outbox_events --id 4711\n  pgrelay render --table pgrelay.outbox_events --id 4711 --json | jq -r .body",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.render(cmd.Context(), table, id, asJSON) },
	}
	oneRow(cmd, &table, &id, &asJSON)
	return cmd
}

// oneRow gives a command the flags that name a row.
func oneRow(cmd *cobra.Command, table, id *string, asJSON *bool) {
	cmd.Flags().StringVar(table, "table", "", "outbox, as configured or qualified")
	cmd.Flags().StringVar(id, "id", "", "key of the row")
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
	required(cmd, "table")
	required(cmd, "id")
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
		if err := a.print(asJSON, r, func(w *tabwriter.Writer) { printRendered(w, r, s.cfg.Destinations[r.Destination]) }); err != nil {
			return err
		}
		if !asJSON && r.Body != "" {
			// Byte for byte, which the columns above would not keep.
			fmt.Fprintf(a.stdout, "\n%s\n", r.Body)
		}
		if r.Rejection != nil {
			return fmt.Errorf("row %s of %s can never be sent: %w", r.ID, r.Table, r.Rejection)
		}
		return nil
	})
}

func printRendered(w *tabwriter.Writer, r relay.Rendered, d config.Destination) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, printable(value))
		}
	}
	line("table", r.Table)
	line("id", r.ID)
	line("kind", r.Kind)
	if r.Destination != "" {
		line("destination", strings.TrimRight(fmt.Sprintf("%s (%s %s", r.Destination, d.Type, d.Queue), " ")+")")
	}
	line("event id", r.EventID)
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
}

// printable quotes what would not stay on its line, or would do something to a terminal.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return strconv.Quote(text)
	}
	return text
}
