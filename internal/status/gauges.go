package status

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pgrelay/relay"
)

// freshFor is how long a sample is shown: over a few that fail, not over an outage, during
// which the figures of before it would calm every alarm.
const freshFor = 4 * interval

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descLag      = describe("pgrelay_slot_lag_bytes", "WAL that the slot has not confirmed. 0 for a lost slot: look at pgrelay_slot_lost.")
	descRetained = describe("pgrelay_slot_retained_bytes", "WAL that the server keeps for the slot. 0 for a lost slot.")
	descSafe     = describe("pgrelay_slot_safe_bytes",
		"WAL that may still be written before the server may invalidate the slot; +Inf where max_slot_wal_keep_size sets no limit, 0 for a lost slot.")
	descLost   = describe("pgrelay_slot_lost", "1 if the slot is missing or can never be read again.")
	descWriter = describe("pgrelay_oldest_writer_seconds",
		"Age of the oldest open transaction that has written, in any database: the slot retains WAL from there on. 0 without one that the role may see.")
	descPending  = describe("pgrelay_pending", "Rows that are due and not settled, in flight or waiting for a retry included; counted up to 100000.", "outbox")
	descOldest   = describe("pgrelay_oldest_pending_seconds", "Age of the oldest row that is due and not settled; 0 without one or without created_at.", "outbox")
	descNotReady = describe("pgrelay_not_ready",
		"Rows that are due and wait for their outbox's ready, or for its join to find something; counted up to 100000.", "outbox")
	descUnjoined  = describe("pgrelay_unjoined", "Rows of pgrelay_not_ready for which the join finds nothing.", "outbox")
	descDead      = describe("pgrelay_dead", "Dead letters; counted up to 100000.", "outbox")
	descUncertain = describe("pgrelay_uncertain", "Rows whose outcome is unknown and left to a person; counted up to 100000.", "outbox")
	descBusy      = describe("pgrelay_processing", "Rows in flight.", "outbox")
)

// gauges are the last sample.
type gauges struct {
	mu       sync.Mutex
	slot     Slot
	sampled  time.Time // the slot
	outboxes map[string]outboxSample
}

type outboxSample struct {
	relay.Counts
	at time.Time
}

func newGauges(reg prometheus.Registerer) *gauges {
	g := &gauges{outboxes: map[string]outboxSample{}}
	reg.MustRegister(g)
	return g
}

// set takes what a sample could read.
func (g *gauges) set(s Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if s.Slot.Wanted {
		g.slot, g.sampled = s.Slot, now
	}
	for _, c := range s.Outboxes {
		g.outboxes[c.Table] = outboxSample{c, now}
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLag, descRetained, descSafe, descLost, descWriter, descPending, descNotReady, descUnjoined, descOldest,
		descDead, descUncertain, descBusy} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	if fresh(g.sampled) {
		gauge(descLag, float64(g.slot.LagBytes))
		gauge(descRetained, float64(g.slot.RetainedBytes))
		gauge(descSafe, safeBytes(g.slot))
		gauge(descLost, lost(g.slot))
		gauge(descWriter, g.slot.OldestWriterSeconds)
	}
	for name, c := range g.outboxes {
		if !fresh(c.at) {
			continue
		}
		gauge(descPending, float64(c.Pending+c.Processing+c.Retrying), name)
		gauge(descNotReady, float64(c.NotReady), name)
		gauge(descUnjoined, float64(c.Unjoined), name)
		gauge(descOldest, c.OldestSeconds, name)
		gauge(descDead, float64(c.Dead), name)
		gauge(descUncertain, float64(c.Uncertain), name)
		gauge(descBusy, float64(c.Processing), name)
	}
}

func fresh(at time.Time) bool { return time.Since(at) < freshFor }

func safeBytes(s Slot) float64 {
	switch {
	case lost(s) == 1:
		return 0 // the server reckons none
	case s.SafeBytes == nil:
		return math.Inf(1)
	default:
		return float64(*s.SafeBytes)
	}
}

func lost(s Slot) float64 {
	if s.Lost || !s.Exists {
		return 1
	}
	return 0
}
