package status

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

var infinite = math.Inf(1)

type gauges struct {
	lag, retained, safe, lost              prometheus.Gauge
	pending, oldest, dead, uncertain, busy *prometheus.GaugeVec
}

func newGauges(reg prometheus.Registerer) *gauges {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	vec := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"outbox"})
	}
	g := &gauges{
		lag:       gauge("pgrelay_slot_lag_bytes", "WAL that the slot has not confirmed. 0 for a lost slot: look at pgrelay_slot_lost."),
		retained:  gauge("pgrelay_slot_retained_bytes", "WAL that the server keeps for the slot."),
		safe:      gauge("pgrelay_slot_safe_bytes", "WAL that may still be written before the slot is in danger; +Inf where max_slot_wal_keep_size sets no limit."),
		lost:      gauge("pgrelay_slot_lost", "1 if the slot is missing or can never be read again."),
		pending:   vec("pgrelay_pending", "Rows that are due and not settled, up to a cap."),
		oldest:    vec("pgrelay_oldest_pending_seconds", "Age of the oldest such row."),
		dead:      vec("pgrelay_dead", "Dead letters, up to a cap."),
		uncertain: vec("pgrelay_uncertain", "Rows whose outcome is unknown and left to a person, up to a cap."),
		busy:      vec("pgrelay_processing", "Rows in flight."),
	}
	reg.MustRegister(g.lag, g.retained, g.safe, g.lost, g.pending, g.oldest, g.dead, g.uncertain, g.busy)
	return g
}

func (g *gauges) set(s Status) {
	if s.Slot.Wanted {
		g.lag.Set(float64(s.Slot.LagBytes))
		g.retained.Set(float64(s.Slot.RetainedBytes))
		g.safe.Set(infinite)
		if s.Slot.SafeBytes != nil {
			g.safe.Set(float64(*s.Slot.SafeBytes))
		}
		g.lost.Set(0)
		if s.Slot.Lost || !s.Slot.Exists {
			g.lost.Set(1)
		}
	}
	for _, c := range s.Outboxes {
		g.pending.WithLabelValues(c.Table).Set(float64(c.Pending + c.Processing + c.Retrying))
		g.oldest.WithLabelValues(c.Table).Set(c.OldestSeconds)
		g.dead.WithLabelValues(c.Table).Set(float64(c.Dead))
		g.uncertain.WithLabelValues(c.Table).Set(float64(c.Uncertain))
		g.busy.WithLabelValues(c.Table).Set(float64(c.Processing))
	}
}
