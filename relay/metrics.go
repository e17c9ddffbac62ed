package relay

import "github.com/prometheus/client_golang/prometheus"

// metrics are the relay's own; destinations have theirs.
type metrics struct {
	leader  prometheus.Gauge
	dead    *prometheus.CounterVec
	dropped *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		leader: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pgrelay_leader", Help: "1 while this instance holds the lock and relays, 0 while it stands by."}),
		dead: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_died_total", Help: "Rows that this process found dead, by outbox and reason."}, []string{"outbox", "reason"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_ids_dropped_total", Help: "Ids from the stream for which there was no room; the poller finds those rows."}, []string{"outbox"}),
	}
	reg.MustRegister(m.leader, m.dead, m.dropped)
	return m
}
