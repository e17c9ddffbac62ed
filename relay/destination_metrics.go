package relay

import "github.com/prometheus/client_golang/prometheus"

// destinationMetrics is what is counted per destination; all destinations share it.
type destinationMetrics struct {
	published *prometheus.CounterVec
	failures  *prometheus.CounterVec
	paused    *prometheus.GaugeVec
	batch     *prometheus.HistogramVec
	endToEnd  *prometheus.HistogramVec
}

func newDestinationMetrics(reg prometheus.Registerer) *destinationMetrics {
	m := &destinationMetrics{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_published_total", Help: "Messages that the destination accepted.",
		}, []string{"destination"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_publish_failures_total", Help: "Tries of messages that the destination did not accept.",
		}, []string{"destination", "reason"}),
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pgrelay_destination_paused", Help: "1 from a destination's failure until something gets through again.",
		}, []string{"destination"}),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pgrelay_batch_messages", Help: "Messages in one call.",
			Buckets: []float64{1, 2, 4, 6, 8, 10, 20, 50, 100},
		}, []string{"destination"}),
		endToEnd: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pgrelay_end_to_end_seconds",
			Help: "Time from a row's commit to its acknowledgement by the destination; " +
				"of rows that the poller brought from their created_at, where the table has it.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"destination", "source"}),
	}
	reg.MustRegister(m.published, m.failures, m.paused, m.batch, m.endToEnd)
	return m
}

// begin makes a destination's series, so that they are there before the first message and a rate sees it. It starts paused.
func (m *destinationMetrics) begin(name string) {
	m.published.WithLabelValues(name)
	m.batch.WithLabelValues(name)
	m.endToEnd.WithLabelValues(name, sourceStream)
	m.endToEnd.WithLabelValues(name, sourcePoller)
	m.paused.WithLabelValues(name).Set(1)
}

func boolGauge(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
