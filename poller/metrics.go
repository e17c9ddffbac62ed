package poller

import (
	"github.com/prometheus/client_golang/prometheus"

	"pgrelay/relay"
)

// What a look was for.
const (
	lookDue     = "due"
	lookPending = "look"
)

type metrics struct {
	rows    *prometheus.CounterVec
	deleted *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, tables []*relay.Table) *metrics {
	m := &metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_poller_ids_total",
			Help: "Ids that looks found, by outbox and what was looked for; a row may be found more than once."}, []string{"outbox", "look"}),
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_retention_deleted_total", Help: "Settled rows that were deleted past their retention."}, []string{"outbox"}),
	}
	for _, t := range tables { // there from the start, so that a rate over them sees the first
		m.rows.WithLabelValues(t.Name, lookDue)
		m.rows.WithLabelValues(t.Name, lookPending)
		m.deleted.WithLabelValues(t.Name)
	}
	reg.MustRegister(m.rows, m.deleted)
	return m
}

func (m *metrics) found(outbox, look string, n int) {
	m.rows.WithLabelValues(outbox, look).Add(float64(n))
}

func (m *metrics) retired(outbox string, n int64) {
	m.deleted.WithLabelValues(outbox).Add(float64(n))
}
