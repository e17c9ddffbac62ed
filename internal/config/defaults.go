package config

import (
	"reflect"
	"time"
)

// Default is the configuration of a file that gives no key. It is not valid by
// itself: database, destinations and outboxes have no default.
func Default() *Config {
	return &Config{
		Replication: Replication{Enabled: true, Publication: "pgrelay", Failover: true, MaxRetainedWAL: 1 << 30},
		Relay: Relay{
			BatchSize:        500,
			MaxInFlightBytes: 64 << 20,
			ClaimTimeout:     seconds(60),
			ShutdownTimeout:  seconds(25),
			Retry:            Retry{MaxAttempts: 10, Initial: seconds(1), Max: seconds(300), Multiplier: 2, Jitter: 0.2},
		},
		Poller:    Poller{Interval: seconds(1), SweepInterval: seconds(15)},
		Retention: Retention{Published: Duration(168 * time.Hour)},
		Scheduler: Scheduler{Enabled: true},
		HTTP:      HTTP{Addr: "127.0.0.1:9187"},
		Log:       Log{Level: "info", Format: "json"},
	}
}

// setDefaults fills an entry of a list or a mapping, or a mapping that needn't be there, before its keys are read.
func setDefaults(v reflect.Value) {
	switch entry := v.Addr().Interface().(type) {
	case *Destination:
		*entry = Destination{
			Concurrency: 64,
			Timeout:     seconds(15),
			Pause:       Pause{Initial: Duration(250 * time.Millisecond), Max: seconds(10)},
		}
	case *Outbox:
		*entry = Outbox{OnMalformed: MalformedDead, OnPublished: PublishedStamp, Sends: Sends{Table: "pgrelay.notification_sends"}}
	case *Status:
		*entry = Status{Column: "status", Pending: "PENDING", Processing: "PROCESSING", Published: "PUBLISHED", Dead: "FAILED"}
	case *Route:
		*entry = Route{Order: OrderKey, OnDead: OnDeadRelease, Delivery: AtLeastOnce}
	}
}

// Ports of mail servers, by how TLS begins.
var mailPorts = map[string]int{TLSStart: 587, TLSImplicit: 465, TLSNone: 25}

// setTypeDefaults fills what differs between types of destinations, after the keys were read. A mail server takes few connections from
// one client and may think long about a message.
func setTypeDefaults(src *source, c *Config) {
	for name, d := range c.Destinations {
		if d.Type != TypeSMTP {
			continue
		}
		key := join("destinations", name)
		absent := func(name string) bool { return !src.given(key + "." + name) }
		if absent("tls") {
			d.TLS = TLSStart
		}
		if absent("port") {
			d.Port = mailPorts[d.TLS]
		}
		if absent("concurrency") {
			d.Concurrency = 8
		}
		if absent("timeout") {
			d.Timeout = seconds(60)
		}
		c.Destinations[name] = d
	}
}

func seconds(n int) Duration { return Duration(time.Duration(n) * time.Second) }
