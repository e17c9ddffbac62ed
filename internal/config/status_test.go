package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatusHasDefaultsOnceItIsAskedFor(t *testing.T) {
	t.Parallel()
	require.Zero(t, parse(t, outbox("table: t"), nil).Outboxes[0].Status)
	require.Equal(t, Status{"status", "PENDING", "PROCESSING", "PUBLISHED", "FAILED"}, parse(t, outbox("table: t\nstatus: {}"), nil).Outboxes[0].Status)
	c := parse(t, outbox("table: t\nstatus: {column: published_at, pending: '0'}\ncolumns: {updated_at: x}"), nil)
	require.Equal(t, Status{"published_at", "0", "PROCESSING", "PUBLISHED", "FAILED"}, c.Outboxes[0].Status)
}

func TestRetentionIsTheOutboxesOwnOrThatOfPgrelaysTable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"table: pgrelay.outbox_events":                     24 * time.Hour,
		"table: pgrelay.outbox_events\nretention: 2h":      2 * time.Hour,
		"table: pgrelay.outbox_events\nretention: 0":       0,
		"table: outbox_events":                             0,
		"table: t\nretention: 2h\nledger: l":               2 * time.Hour,
		"table: t\nledger: l # who deletes is not told us": 0,
	} {
		c := parse(t, outbox(text)+"retention: {published: 24h, ledger: 48h}\n", nil)
		require.Equal(t, Duration(want), c.Outboxes[0].Retention, text)
	}
}
