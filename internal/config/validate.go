package config

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// validator checks what each value means once all of them are read.
type validator struct {
	*source
	c *Config
}

func (v *validator) validate() {
	v.database()
	v.replication()
	v.relay()
	between(v, "poller.interval", v.c.Poller.Interval, millis(10), hours(1))
	between(v, "poller.sweep_interval", v.c.Poller.SweepInterval, millis(100), hours(24))
	v.retention()
	v.scheduler()
	v.destinations()
	v.outboxes()
	v.http()
	v.oneOf("log.level", v.c.Log.Level, "trace", "debug", "info", "warn", "error")
	v.oneOf("log.format", v.c.Log.Format, "json", "console")
}

func (v *validator) retention() {
	r := v.c.Retention
	between(v, "retention.published", r.Published, 0, hours(10*365*24))
	between(v, "retention.ledger", r.Ledger, 0, hours(10*365*24))
	if r.Ledger != 0 && (r.Published == 0 || r.Ledger < r.Published) {
		v.report("retention.ledger", "must not be shorter than retention.published (zero is for ever): an event whose row is still there could go out again")
	}
	for i := range v.c.Outboxes {
		o, key := &v.c.Outboxes[i], fmt.Sprintf("outboxes[%d].retention", i)
		if !v.given(key) {
			if table, err := ParseTable(o.Table); err == nil && table == ownTable {
				o.Retention = r.Published
			}
			continue
		}
		between(v, key, o.Retention, 0, hours(10*365*24))
		if o.Ledger != "" && r.Ledger != 0 && (o.Retention == 0 || r.Ledger < o.Retention) {
			v.report(key, "must not be longer than retention.ledger (zero is for ever): an event whose row is still there could go out again")
		}
	}
}

// ownTable is the outbox that `pgrelay migrate up` makes.
var ownTable = Table{Schema: "pgrelay", Name: "outbox_events"}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (v *validator) replication() {
	r := v.c.Replication
	if r.Slot != "" && !slotName.MatchString(r.Slot) {
		v.report("replication.slot", "must be 1 to 63 of a-z, 0-9 and _")
	}
	if !identifier(r.Publication) {
		v.report("replication.publication", "must be a name of 1 to 63 bytes")
	}
	// Less than a segment or so would be over budget all the time.
	between(v, "replication.max_retained_wal", r.MaxRetainedWAL, 1<<20, 1<<50)
}

func (v *validator) relay() {
	r := v.c.Relay
	between(v, "relay.batch_size", r.BatchSize, 1, 10_000)
	// SQS takes messages up to 1 MiB; a smaller budget could hold none of them.
	between(v, "relay.max_in_flight_bytes", r.MaxInFlightBytes, 1<<20, 16<<30)
	between(v, "relay.claim_timeout", r.ClaimTimeout, millis(1000), hours(24))
	between(v, "relay.shutdown_timeout", r.ShutdownTimeout, millis(100), hours(1))
	between(v, "relay.retry.max_attempts", r.Retry.MaxAttempts, 1, 10_000)
	v.backoff("relay.retry", r.Retry.Initial, r.Retry.Max, hours(24))
	between(v, "relay.retry.multiplier", r.Retry.Multiplier, 1, 100)
	between(v, "relay.retry.jitter", r.Retry.Jitter, 0, 1)
}

func (v *validator) backoff(key string, initial, most, limit Duration) {
	between(v, key+".initial", initial, millis(1), limit)
	between(v, key+".max", most, millis(1), limit)
	switch {
	case v.told[key+".initial"] || v.told[key+".max"] || initial <= most:
	case v.given(key + ".max"):
		v.report(key+".max", "must not be less than %s.initial", key)
	default:
		v.report(key+".initial", "must not be more than %s.max, which is %s where it is not given", key, most)
	}
}

func (v *validator) http() {
	if v.c.HTTP.Addr == "" {
		return
	}
	_, port, err := net.SplitHostPort(v.c.HTTP.Addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		v.report("http.addr", `must be host:port with a port from 0 to 65535, such as 127.0.0.1:9187, or "" for no server`)
	}
}

func (v *validator) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		last := len(allowed) - 1
		v.report(key, "must be %s or %s%s", strings.Join(allowed[:last], ", "), allowed[last], v.suggest(key, value, allowed))
	}
}

// suggest is didYouMean, except for a value from a variable: how near it comes to a
// word is nobody's business.
func (v *validator) suggest(key, value string, candidates []string) string {
	if v.variable[key] {
		return ""
	}
	return didYouMean(value, candidates)
}

func between[T cmp.Ordered](v *validator, key string, value, low, high T) {
	if value < low || value > high {
		v.report(key, "must be between %v and %v", low, high)
	}
}

func millis(n int) Duration { return Duration(time.Duration(n) * time.Millisecond) }

func hours(n int) Duration { return Duration(time.Duration(n) * time.Hour) }
