package replication

import "github.com/prometheus/client_golang/prometheus"

// Metrics are what the stream counts. The slot's own figures are read by whoever
// samples [Inspect].
type Metrics struct {
	connected  prometheus.Gauge
	reconnects prometheus.Counter
	rows       prometheus.Counter
	unmatched  *prometheus.CounterVec
	slots      *prometheus.CounterVec
}

// Labels of unmatched rows.
const (
	unmatchedRelation = "unknown_relation"
	unmatchedID       = "no_id"
)

// NewMetrics registers the stream's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pgrelay_stream_connected", Help: "1 while the replication stream is read.",
		}),
		reconnects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pgrelay_stream_reconnects_total", Help: "Streams that ended and had to be started again.",
		}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pgrelay_stream_rows_total", Help: "Inserted rows received, of outbox tables.",
		}),
		unmatched: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_stream_unmatched_rows_total",
			Help: "Inserted rows received that could not be handed over: of a relation that is no outbox, or without the id column.",
		}, []string{"reason"}),
		slots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_slot_created_total", Help: "Slots made, by the reason why the one before would not do.",
		}, []string{"reason"}),
	}
	// All at zero from the start: a rate over a series that is not there yet alarms nobody.
	m.unmatched.WithLabelValues(unmatchedRelation)
	m.unmatched.WithLabelValues(unmatchedID)
	for _, why := range []string{replaceMissing, replaceLost, replaceOverBudget, replaceUnfinished, replaceLasting, replacePublication} {
		m.slots.WithLabelValues(why)
	}
	reg.MustRegister(m.connected, m.reconnects, m.rows, m.unmatched, m.slots)
	return m
}
