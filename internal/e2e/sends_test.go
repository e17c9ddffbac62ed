package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/smtptest"
)

func TestUncertainMailIsDecidedByCommand(t *testing.T) {
	t.Parallel()
	w, s := newMailWorld(t)
	s.SetFault(func(c smtptest.Command) smtptest.Fault {
		if c.Verb == "DOT" && (c.Recipient == recipient("ada", 1) || c.Recipient == recipient("bob", 2)) {
			return smtptest.Fault{Accept: c.Recipient == recipient("ada", 1), Cut: true}
		}
		return smtptest.Fault{}
	})
	w.start()
	w.invite(2)
	w.eventually("2", `SELECT count(*)::text FROM pgrelay.outbox_event_status WHERE status = 'UNCERTAIN'`)
	s.SetFault(nil)

	list := w.done("sends", "list", "--uncertain")
	require.Contains(t, list, recipient("ada", 1))
	require.Contains(t, list, recipient("bob", 2))
	require.NotContains(t, list, "carol")
	require.Contains(t, w.done("explain", "--table", "pgrelay.outbox_events", "--id", "1"), "pgrelay sends resolve --event")
	event := func(id int) string {
		return w.string(`SELECT event_id::text FROM pgrelay.outbox_events WHERE id = $1`, id)
	}
	require.Contains(t, w.done("sends", "resolve", "--event", event(1), "--sent"), "its row is published")
	require.Contains(t, w.done("sends", "resolve", "--event", event(2), "--recipient", recipient("bob", 2), "--retry"), "its row goes again")
	w.eventually("2", `SELECT count(*)::text FROM pgrelay.outbox_event_status WHERE status = 'PUBLISHED'`)
	require.Contains(t, w.done("sends", "list", "--uncertain"), "no uncertain sends")
	require.Equal(t, "[]\n", w.done("sends", "list", "--uncertain", "--json"))
	require.Len(t, s.Mails(), 6, "each recipient has one mail")

	for name, test := range map[string]struct {
		code int
		args []string
	}{
		"decided before": {1, []string{"--event", event(1), "--sent"}},
		"no such event":  {1, []string{"--event", "nothing", "--retry"}},
		"no decision":    {2, []string{"--event", event(1)}},
		"two decisions":  {2, []string{"--event", event(1), "--sent", "--retry"}},
		"no event":       {2, []string{"--sent"}},
	} {
		code, _, stderr := w.run(append([]string{"sends", "resolve"}, test.args...)...)
		require.Equal(t, test.code, code, "%s: %s", name, stderr)
	}
	require.Contains(t, w.done("republish", "--table", "pgrelay.outbox_events", "--id", "1"), "3 send(s) are not made again, because they are claimed; to make again those that arrived, add --force; of those of which nobody knows")
}
