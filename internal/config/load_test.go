package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, text string, env env) *Config {
	t.Helper()
	c, err := Parse("f", []byte(text), env.lookUp)
	require.NoError(t, err)
	return c
}

func TestLoadsWhatTheFileSays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pgrelay.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`
database: {url: "host=/var/run/postgresql dbname=bookings pool_max_conns=3"}
replication: {enabled: false, slot: s1, publication: "My Pub", temporary: true, failover: false, max_retained_wal: 512MiB}
relay:
  batch_size: 7
  max_in_flight_bytes: 3GiB
  claim_timeout: 90s
  shutdown_timeout: 1m30s
  retry: {max_attempts: 3, initial: 2s, max: 1h, multiplier: 1.5, jitter: 0}
poller: {interval: 50ms, sweep_interval: 1s}
retention: {published: 0}
destinations:
  orders: {type: sqs, queue: orders.fifo, region: eu-west-1, endpoint: "http://localhost:4566", concurrency: 2, linger: 5ms, timeout: 3s, pause: {initial: 1s, max: 2s}}
  console: {type: stdout, timeout: 1s}
  "unused.one": {type: stdout}
outboxes:
  - table: '"My Schema"."Tab.le"'
    columns: {id: ID, published_at: sent at}
    order_by: created_at, id
    sends: {table: '"My Sends"', columns: {sent_at: done at, recipient: "to"}}
    routes:
      - {kind: A_*, to: orders, on_dead: block, delivery: at_most_once, group: "{{.ordering_key}}", dedup_id: "{{.id}}", attributes: {tenant.id: "{{.tenant}}"}}
      - kind: "*"
        to: console
        order: none
        body: |
          {{json .payload}}
  - table: other
    order_by: [a, "b c"]
    routes: [{kind: b, to: orders, order: key}]
http: {addr: ":0"}
log: {level: trace, format: console}
scheduler:
  enabled: false
  jobs:
    - {name: sync.due, every: 1m30s, sql: "SELECT $$$$x$$$$; SELECT 1"}
`), 0o600))

	c, err := Load(path, os.LookupEnv)

	require.NoError(t, err)
	second := func(n float64) Duration { return Duration(n * float64(time.Second)) }
	require.Equal(t, &Config{
		File:        path,
		Scheduler:   Scheduler{Jobs: []Job{{Name: "sync.due", Every: second(90), SQL: "SELECT $$x$$; SELECT 1"}}},
		Database:    Database{URL: "host=/var/run/postgresql dbname=bookings pool_max_conns=3"},
		Replication: Replication{Slot: "s1", Publication: "My Pub", Temporary: true, MaxRetainedWAL: 512 << 20},
		Relay: Relay{BatchSize: 7, MaxInFlightBytes: 3 << 30, ClaimTimeout: second(90), ShutdownTimeout: second(90),
			Retry: Retry{MaxAttempts: 3, Initial: second(2), Max: second(3600), Multiplier: 1.5}},
		Poller: Poller{Interval: second(0.05), SweepInterval: second(1)},
		Destinations: map[string]Destination{
			"orders": {Type: "sqs", Queue: "orders.fifo", Region: "eu-west-1", Endpoint: "http://localhost:4566",
				Concurrency: 2, Linger: second(0.005), Timeout: second(3), Pause: Pause{second(1), second(2)}},
			"console":    {Type: "stdout", Concurrency: 64, Timeout: second(1), Pause: Pause{second(0.25), second(10)}},
			"unused.one": {Type: "stdout", Concurrency: 64, Timeout: second(15), Pause: Pause{second(0.25), second(10)}},
		},
		Outboxes: []Outbox{
			{Line: 17, Table: `"My Schema"."Tab.le"`, Columns: Columns{ID: "ID", PublishedAt: "sent at"}, OrderBy: []string{"created_at", "id"}, OnMalformed: "dead_letter", OnPublished: "stamp",
				Sends: Sends{Table: `"My Sends"`, Columns: SendColumns{SentAt: "done at", Recipient: "to"}},
				Routes: []Route{
					{Line: 22, Kind: "A_*", To: "orders", Order: "key", OnDead: "block", Delivery: "at_most_once", Group: "{{.ordering_key}}", DedupID: "{{.id}}",
						Attributes: map[string]string{"tenant.id": "{{.tenant}}"}},
					{Line: 23, Kind: "*", To: "console", Order: "none", OnDead: "release", Delivery: "at_least_once", Body: "{{json .payload}}\n"},
				}},
			{Line: 28, Table: "other", OrderBy: []string{"a", "b c"}, OnMalformed: "dead_letter", OnPublished: "stamp", Sends: Sends{Table: "pgrelay.notification_sends"}, Routes: []Route{{Line: 30, Kind: "b", To: "orders", Order: "key", OnDead: "release", Delivery: "at_least_once"}}},
		},
		HTTP: HTTP{Addr: ":0"},
		Log:  Log{Level: "trace", Format: "console"},
	}, c)
}

func TestFileThatGivesOnlyTheRequiredHasTheDefaults(t *testing.T) {
	t.Parallel()
	c := parse(t, file(""), nil)
	want := Default()
	want.File = "f"
	want.Database, want.Destinations, want.Outboxes = c.Database, c.Destinations, c.Outboxes
	require.Equal(t, want, c)
	require.Equal(t, Duration(5*time.Minute), c.Relay.Retry.Max)
	require.Empty(t, c.Replication.Slot)
	require.Empty(t, c.Outboxes[0].OrderBy)
}

func TestAcceptsQueuesThatDoNotContradictTheirEndpoint(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{
		"{type: sqs, queue: 'arn:aws:sqs:eu-west-1:123456789012:a.fifo', region: eu-west-1, endpoint: 'http://localhost:4566'}",
		"{type: sqs, queue: 'https://sqs.eu-west-1.amazonaws.com/123456789012/a', region: eu-west-1}",
		"{type: sqs, queue: 'https://sqs.eu-west-1.amazonaws.com/123456789012/a', endpoint: 'https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com'}",
		"{type: sqs, queue: 'http://localhost:9324/queue/a', region: elasticmq, endpoint: 'http://LOCALHOST:9324'}",
		"{type: sqs, queue: a, region: '', endpoint: ''}",
	} {
		parse(t, destination(keys), nil)
	}
}

func TestAliasStandsForTheWholeValue(t *testing.T) {
	t.Parallel()
	c := parse(t, route("- {kind: a, to: bookings, body: &b '{{json .payload}}'}\n- {kind: b, to: bookings, body: *b}"), nil)
	require.Equal(t, "{{json .payload}}", c.Outboxes[0].Routes[1].Body)
}

func TestFileThatCannotBeReadIsAProblem(t *testing.T) {
	t.Parallel()
	_, err := Load("/nowhere/pgrelay.yaml", os.LookupEnv)
	require.IsType(t, Problems{}, err)
	require.EqualError(t, err, "/nowhere/pgrelay.yaml: can't be read: no such file or directory")
}

func TestFIFOIsReadFromTheQueuesName(t *testing.T) {
	t.Parallel()
	for queue, want := range map[string]bool{
		"orders.fifo": true, "orders": false, "fifo": false,
		"arn:aws:sqs:eu-west-1:123456789012:orders.fifo":                      true,
		"https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo/":       true,
		"https://orders.fifo.example.com/123456789012/orders":                 false,
		"https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo?x=fifo": false,
	} {
		require.Equal(t, want, Destination{Type: TypeSQS, Queue: queue}.FIFO(), queue)
	}
	require.False(t, Destination{Type: TypeStdout}.FIFO())
}

func TestSecretPrintsAsStars(t *testing.T) {
	t.Parallel()
	d := Database{URL: "postgres://u:hunter2@h/d"}
	encoded, err := json.Marshal(d)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprint(d), fmt.Sprintf("%+v %#v %q %x", d, d, d.URL, d.URL), string(encoded)} {
		require.NotContains(t, text, "hunter2")
		require.Contains(t, text, "***")
	}
}

func TestDurationsAndSizesPrintAsFilesWriteThem(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0s", "250ms", "1m", "1m30s", "1h", "168h", "1h30m", "1h0m5s", "10s", "20m"} {
		d, err := parseDuration(text)
		require.NoError(t, err)
		require.Equal(t, text, Duration(d).String())
	}
	for _, text := range []string{"0B", "1B", "1023B", "1KiB", "1537KiB", "64MiB", "1GiB", "1024TiB"} {
		s, err := parseSize(text)
		require.NoError(t, err)
		require.Equal(t, text, Size(s).String())
	}
}
