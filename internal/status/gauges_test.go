package status

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"pgrelay/relay"
)

// values are what a registry shows, by name and outbox.
func values(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetGauge().GetValue()
		}
	}
	return all
}

func TestLostAndMissingSlotsAreNeverSilent(t *testing.T) {
	t.Parallel()
	plenty := int64(1 << 40)
	for name, slot := range map[string]Slot{
		"lost":    {Wanted: true, Exists: true, Lost: true},
		"missing": {Wanted: true},
		"both":    {Wanted: true, Lost: true, SafeBytes: &plenty},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewRegistry()
			newGauges(reg).set(Status{Slot: slot})
			got := values(t, reg)
			require.InDelta(t, 1, got["pgrelay_slot_lost"], 0)
			require.InDelta(t, 0, got["pgrelay_slot_safe_bytes"], 0)
		})
	}
}

func TestNothingIsShownOfASlotThatIsNotWanted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	newGauges(reg).set(Status{Outboxes: []relay.Counts{{Table: "o"}}})
	got := values(t, reg)
	require.NotContains(t, got, "pgrelay_slot_lost")
	require.Contains(t, got, "pgrelay_pending o")
}

func TestPendingCountsWhatIsInFlightAndWhatWaits(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	newGauges(reg).set(Status{Outboxes: []relay.Counts{{Table: "o", Pending: 1, Processing: 2, Retrying: 4, Dead: 8, Uncertain: 16, Deferred: 32, OldestSeconds: 64, NotReady: 128, Unjoined: 3}}})
	require.Equal(t, map[string]float64{
		"pgrelay_pending o": 7, "pgrelay_processing o": 2, "pgrelay_dead o": 8, "pgrelay_uncertain o": 16, "pgrelay_oldest_pending_seconds o": 64,
		"pgrelay_not_ready o": 128, "pgrelay_unjoined o": 3,
	}, values(t, reg))
}

func TestAFigureOutlivesAFailedSampleAndNotAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		g := newGauges(reg)
		g.set(Status{Slot: Slot{Wanted: true, Exists: true}, Outboxes: []relay.Counts{{Table: "locked"}, {Table: "other"}}})
		<-time.After(2 * interval)
		g.set(Status{Slot: Slot{Wanted: true, Exists: true}, Outboxes: []relay.Counts{{Table: "other"}}})
		require.Contains(t, values(t, reg), "pgrelay_pending locked")
		<-time.After(2 * interval)
		require.NotContains(t, values(t, reg), "pgrelay_pending locked")
		require.Contains(t, values(t, reg), "pgrelay_pending other")
		<-time.After(2 * interval)
		require.Empty(t, values(t, reg))
	})
}
