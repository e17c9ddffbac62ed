package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"pgrelay/internal/config"
	"pgrelay/internal/status"
	"pgrelay/relay"
)

func newStatus(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show slot, leader and the rows of each outbox",
		Long: "Show slot, leader and, of each outbox, the rows that are not out:\n\n" +
			"  PENDING     to be sent now\n" +
			"  NOT READY   waiting for the outbox's ready, or for its join to find something\n" +
			"  DEFERRED    not before their available_at\n" +
			"  PROCESSING  on their way\n" +
			"  RETRYING    refused or unanswered, and tried again\n" +
			"  DEAD        given up: pgrelay dead list\n" +
			"  UNCERTAIN   nobody knows whether they arrived: pgrelay sends list --uncertain\n" +
			"  OLDEST      age of the oldest that could be out, by created_at\n\n" +
			"Counts end at 100,000. What is paused only the leader knows: it is asked at\n" +
			"http.addr.",
		Example: "  pgrelay status\n  pgrelay status --json", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSession(cmd.Context(), func(s *session) error {
				st, err := status.Read(cmd.Context(), s.conn, slotName(s.cfg, s.conn.Config().Database), s.tables)
				if err != nil && len(st.Outboxes) == 0 {
					return err
				}
				// An outbox that is locked, or whose SQL fails for a row, hides no other.
				hear(&st, askRunning(cmd.Context(), s.cfg.HTTP.Addr))
				return errors.Join(a.print(asJSON, st, func(p *page) { printStatus(p, st) }), err)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// hear adds what a running relay knows of itself, if it is the leader.
func hear(st *status.Status, running *relay.State) {
	if running == nil || running.Instance != st.Leader.Instance {
		return
	}
	for _, d := range running.Destinations {
		if d.Paused {
			st.PausedDestinations = append(st.PausedDestinations, d)
		}
	}
	for _, o := range running.Outboxes {
		st.PausedRoutes = append(st.PausedRoutes, o.Paused...)
		if o.Problem != "" {
			o.Paused = nil
			st.RefusedOutboxes = append(st.RefusedOutboxes, o)
		}
	}
}

// slotName is the slot's name, empty where replication is off.
func slotName(cfg *config.Config, database string) string {
	if !cfg.Replication.Enabled {
		return ""
	}
	return cfg.SlotName(database)
}

func printStatus(p *page, st status.Status) {
	p.list([][]cell{cells("slot", slotText(st.Slot)), cells("leader", leaderText(st.Leader))})
	p.line("")
	rows := [][]cell{cells("OUTBOX", "PENDING", "NOT READY", "DEFERRED", "PROCESSING", "RETRYING", "DEAD", "UNCERTAIN", "OLDEST")}
	for _, c := range st.Outboxes {
		rows = append(rows, cells(c.Table, c.Pending, notReadyText(c), c.Deferred, c.Processing, c.Retrying, alarming(c.Dead), alarming(c.Uncertain), oldestText(c)))
	}
	p.table(rows)
	for _, d := range st.PausedDestinations {
		p.line("")
		p.line("destination %s is paused for %s: %s; it is tried again in %s",
			d.Name, roughly(d.PausedSeconds), strings.TrimSuffix(d.Reason+": "+d.Detail, ": "), roughly(d.ProbeSeconds))
	}
	for _, o := range st.RefusedOutboxes {
		p.line("")
		p.line("outbox %s is left alone for a while, because its table refuses the relay: %s", o.Table, o.Problem)
	}
	for _, r := range st.PausedRoutes {
		p.line("")
		p.line("route %s of %s is paused for %s, because its rows all die of %s; mend the cause, then: pgrelay dead retry --table %s --all --reason %s",
			r.Route, r.Outbox, roughly(r.PausedSeconds), r.Reason, r.Outbox, r.Reason)
	}
}

func roughly(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}

// notReadyText says of how many the join finds nothing, which may be for ever.
func notReadyText(c relay.Counts) string {
	if c.Unjoined == 0 {
		return fmt.Sprint(c.NotReady)
	}
	return fmt.Sprintf("%d (%d unjoined)", c.NotReady, c.Unjoined)
}

// oldestText doesn't call a row new whose age a table without created_at can't tell.
func oldestText(c relay.Counts) string {
	if c.Pending > 0 && c.Oldest == 0 {
		return "unknown"
	}
	return c.Oldest.Round(time.Second).String()
}

// alarming is a count that should be 0.
func alarming(n int) cell {
	c := cell{text: fmt.Sprint(n)}
	if n > 0 {
		c.style = red
	}
	return c
}

func leaderText(l status.Leader) string {
	switch {
	case l.Instance == "":
		return "none yet"
	case l.Alive:
		return fmt.Sprintf("%s, epoch %d", l.Instance, l.Epoch)
	}
	return fmt.Sprintf("none since %s (was %s)", roughly(l.SeenSeconds), l.Instance)
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
	text := fmt.Sprintf("%s, lag %s, retained WAL %s", s.Name, size(s.LagBytes), size(s.RetainedBytes))
	if s.OldestWriterSeconds >= 60 {
		text += ", held back by a transaction open for " + roughly(s.OldestWriterSeconds).String()
	}
	if !s.Active {
		text += ", nobody reads it"
	}
	return text
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
