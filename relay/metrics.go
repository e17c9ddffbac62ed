package relay

import "github.com/prometheus/client_golang/prometheus"

// metrics are the relay's own; destinations have theirs.
type metrics struct {
	leader    prometheus.Gauge
	dead      *prometheus.CounterVec
	dropped   *prometheus.CounterVec
	recorded  *prometheus.CounterVec
	routes    *prometheus.GaugeVec
	malformed *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, tables []*Table) *metrics {
	m := &metrics{
		leader: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pgrelay_leader", Help: "1 while this instance holds the lock and relays, 0 while it stands by."}),
		dead: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_died_total", Help: "Rows that left the pending set undelivered: dead, or their outcome is left to a person."}, []string{"outbox", "reason"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_ids_dropped_total", Help: "Ids from the stream that found no room in memory; the poller finds their rows."}, []string{"outbox"}),
		recorded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_recorded_total", Help: "Rows that were stamped and not sent, because their event is in the ledger."}, []string{"outbox"}),
		routes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pgrelay_route_paused",
			Help: "1 while a route is paused because its rows all die alike; the rows that no route takes count as one."}, []string{"outbox", "route"}),
		malformed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgrelay_malformed_stamped_total",
			Help: "Malformed rows that were stamped and not sent, as their outbox's on_malformed says."}, []string{"outbox"}),
	}
	for _, t := range tables {
		for route := noRoute; route < len(t.sinks); route++ {
			m.routes.WithLabelValues(t.Name, t.RouteName(route))
		}
		// There from the start, so that a rate over it sees the first.
		m.recorded.WithLabelValues(t.Name)
		m.malformed.WithLabelValues(t.Name)
		m.dropped.WithLabelValues(t.Name)
	}
	reg.MustRegister(m.leader, m.dead, m.dropped, m.recorded, m.routes, m.malformed)
	return m
}
