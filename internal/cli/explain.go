package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pgrelay/relay"
	"pgrelay/replication"
)

func newExplain(a *app) *cobra.Command {
	var table, id string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "explain", Short: "Say why a row is not out, and what to do",
		Long: "Say why a row is where it is, and what to do. It reads the database in one\n" +
			"snapshot, asks the relay at http.addr if one answers there, and changes and\n" +
			"locks nothing. Exit 1 if there is no such row.",
		Example: "  pgrelay explain --table pgrelay.outbox_events --id 4711\n  pgrelay explain --table pgrelay.outbox_events --id 4711 --json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.explain(cmd.Context(), table, id, asJSON) },
	}
	a.oneRow(cmd, &table, &id, &asJSON)
	return cmd
}

func (a *app) explain(ctx context.Context, table, id string, asJSON bool) error {
	return a.withSession(ctx, func(s *session) error {
		t, err := s.table(table)
		if err != nil {
			return err
		}
		e, err := t.Explain(ctx, s.conn, id, relay.Surroundings{
			MaxAttempts: s.cfg.Relay.Retry.MaxAttempts, Interval: time.Duration(s.cfg.Poller.Interval),
			ClaimTimeout: time.Duration(s.cfg.Relay.ClaimTimeout), SweepInterval: time.Duration(s.cfg.Poller.SweepInterval), Running: askRunning(ctx, s.cfg.HTTP.Addr),
		})
		if err != nil {
			return err
		}
		if e.State == relay.StateFree && s.cfg.Replication.Enabled {
			if err := s.noteStream(ctx, t, &e); err != nil {
				return err
			}
		}
		if err := a.print(asJSON, e, func(p *page) { printExplanation(p, e) }); err != nil {
			return err
		}
		if e.State == relay.StateNoRow {
			return &relay.NotFoundError{What: fmt.Sprintf("outbox %s has no row with id %s", t.Name, id)}
		}
		return nil
	})
}

// noteStream says so if the stream does not bring a table's rows.
func (s *session) noteStream(ctx context.Context, t *relay.Table, e *relay.Explanation) error {
	name := s.cfg.Replication.Publication
	st, err := replication.InspectPublication(ctx, s.conn, name,
		[]replication.Table{{Schema: t.Schema, Name: t.Relation, IDColumn: t.IDColumn.Name, Canonical: t.Name}})
	if err != nil {
		return err
	}
	if len(st.Statements) > 0 || st.LeftOut != "" {
		e.Notes = append(e.Notes, fmt.Sprintf(
			"publication %s does not carry this outbox, so its rows wait for the poller; `pgrelay check` says how to mend that", name))
	}
	return nil
}

// askRunningWithin bounds the question to a relay that may be elsewhere.
const askRunningWithin = 2 * time.Second

// askRunning asks the relay that listens on addr how it is; nil if there is no answer.
func askRunning(ctx context.Context, addr string) *relay.State {
	if addr == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askRunningWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/state", http.NoBody)
	if err != nil {
		return nil
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	resp, err := client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	var state relay.State
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&state) != nil {
		return nil
	}
	return &state
}

func printExplanation(w io.Writer, e relay.Explanation) {
	fmt.Fprintf(w, "row %s of %s: %s\n\n%s\n", e.ID, e.Table, strings.ReplaceAll(string(e.State), "_", " "), e.Text)
	for _, note := range e.Notes {
		fmt.Fprintf(w, "- %s\n", note)
	}
	if e.HeldBy != nil {
		fmt.Fprintln(w)
		printExplanation(w, *e.HeldBy)
	}
}
