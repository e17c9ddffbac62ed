package config

import "time"

// Config is one pgrelay.yaml. Load fills in the defaults, so that a zero value
// below means what the file says and not that it says nothing.
type Config struct {
	// File is what was read, for later errors.
	File         string                 `yaml:"-"`
	Database     Database               `yaml:"database"`
	Replication  Replication            `yaml:"replication"`
	Relay        Relay                  `yaml:"relay"`
	Poller       Poller                 `yaml:"poller"`
	Retention    Retention              `yaml:"retention"`
	Scheduler    Scheduler              `yaml:"scheduler"`
	Destinations map[string]Destination `yaml:"destinations"`
	Outboxes     []Outbox               `yaml:"outboxes"`
	HTTP         HTTP                   `yaml:"http"`
	Log          Log                    `yaml:"log"`
}

// Database says where PostgreSQL is.
type Database struct {
	// URL is what libpq takes: URL or keywords, several hosts, sockets. It is a
	// secret: it never reaches a log or an error.
	URL Secret `yaml:"url"`
}

// Replication is the stream's part: slot and publication.
type Replication struct {
	Enabled     bool   `yaml:"enabled"`
	Slot        string `yaml:"slot"` // empty: pgrelay_<database>
	Publication string `yaml:"publication"`
	Temporary   bool   `yaml:"temporary"`
	Failover    bool   `yaml:"failover"`
	// MaxRetainedWAL is the WAL that the slot may hold back before the relay lets it go.
	MaxRetainedWAL Size `yaml:"max_retained_wal"`
}

// Relay is what claim, publish and stamp are bounded by.
type Relay struct {
	BatchSize        int  `yaml:"batch_size"`
	MaxInFlightBytes Size `yaml:"max_in_flight_bytes"`
	// ClaimTimeout is how long somebody else's claim of a row of a table with a status is left alone.
	ClaimTimeout    Duration `yaml:"claim_timeout"`
	ShutdownTimeout Duration `yaml:"shutdown_timeout"`
	Retry           Retry    `yaml:"retry"`
}

// Retry is the backoff of a row: min(Max, Initial·Multiplierⁿ) ± Jitter, clamped to Max.
type Retry struct {
	MaxAttempts int      `yaml:"max_attempts"`
	Initial     Duration `yaml:"initial"`
	Max         Duration `yaml:"max"`
	Multiplier  float64  `yaml:"multiplier"`
	Jitter      float64  `yaml:"jitter"` // a fraction: 0.2 is ±20 %
}

// Poller says how often to look for what the stream did not bring.
type Poller struct {
	Interval      Duration `yaml:"interval"`
	SweepInterval Duration `yaml:"sweep_interval"`
}

// Retention says how long settled rows of pgrelay.outbox_events stay, unless its outbox says otherwise; zero is for ever.
type Retention struct {
	Published Duration `yaml:"published"`
	// Ledger is how long events stay in the outboxes' ledgers.
	Ledger Duration `yaml:"ledger"`
}

// Scheduler runs SQL that puts due work into outboxes.
type Scheduler struct {
	Enabled bool  `yaml:"enabled"`
	Jobs    []Job `yaml:"jobs"`
}

// Job is run in one transaction each time.
type Job struct {
	Name  string   `yaml:"name"`
	Every Duration `yaml:"every"`
	SQL   string   `yaml:"sql"`
}

// Destination is one place that messages go to.
type Destination struct {
	Type        string   `yaml:"type"`     // sqs | smtp | stdout
	Queue       string   `yaml:"queue"`    // sqs: name, ARN or URL
	Region      string   `yaml:"region"`   // sqs; empty: from the queue, else the SDK's
	Endpoint    string   `yaml:"endpoint"` // sqs; empty: AWS's, or the SDK's environment
	Host        string   `yaml:"host"`     // smtp: a name or an address, without the port
	Port        int      `yaml:"port"`     // smtp
	TLS         string   `yaml:"tls"`      // smtp: starttls | tls | none
	Username    string   `yaml:"username"` // smtp; empty: no login
	Password    Secret   `yaml:"password"` // smtp
	From        string   `yaml:"from"`     // smtp: address, or "Name <address>"
	Concurrency int      `yaml:"concurrency"`
	Linger      Duration `yaml:"linger"`
	Timeout     Duration `yaml:"timeout"`
	Pause       Pause    `yaml:"pause"`
}

// Pause bounds how long a destination that is at fault is left alone; the time
// is drawn from full jitter.
type Pause struct {
	Initial Duration `yaml:"initial"`
	Max     Duration `yaml:"max"`
}

// Outbox is one table to relay.
type Outbox struct {
	Table   string   `yaml:"table"`
	Columns Columns  `yaml:"columns"`
	Status  Status   `yaml:"status"`   // zero: published_at is the mark
	OrderBy []string `yaml:"order_by"` // ascending; empty: the key
	// Ledger is a table of the event ids that were published; empty: none.
	Ledger string `yaml:"ledger"`
	// Sends is where routes that send at most once claim their sends.
	Sends Sends `yaml:"sends"`
	// Join, Select and Ready are SQL over the table as o: what stands beside a row, columns of it, and whether the row may go.
	Join   string  `yaml:"join"`
	Select string  `yaml:"select"`
	Ready  string  `yaml:"ready"`
	Kind   RowKind `yaml:"kind"`
	// OnMalformed says what becomes of a row that has no message; Set are SQL assignments beside the stamp.
	OnMalformed string `yaml:"on_malformed"` // dead_letter | stamp
	Set         string `yaml:"set"`
	OnPublished string `yaml:"on_published"` // stamp | delete
	// Retention is how long settled rows stay; zero is for ever. That of pgrelay.outbox_events is Config.Retention's where it is not given.
	Retention Duration `yaml:"retention"`
	Routes    []Route  `yaml:"routes"`
	// Line is where the outbox stands in the file, for later errors.
	Line int `yaml:"-"`
}

// Sends is a table of send claims.
type Sends struct {
	Table   string      `yaml:"table"`
	Columns SendColumns `yaml:"columns"`
}

// SendColumns maps our names to the table's bare names. Empty is the same name.
type SendColumns struct {
	EventID   string `yaml:"event_id"`
	Recipient string `yaml:"recipient"`
	EventType string `yaml:"event_type"`
	ClaimedAt string `yaml:"claimed_at"`
	SentAt    string `yaml:"sent_at"`
	LastError string `yaml:"last_error"`
}

// RowKind says what kind a table's rows are of: all of one, or each of what a column of the row or of Select says. Empty is
// the event_type column.
type RowKind struct {
	Constant string `yaml:"-"` // written as a text instead of a mapping
	Column   string `yaml:"column"`
}

// Status is a column that says how far a row is, and its values.
type Status struct {
	Column     string `yaml:"column"`
	Pending    string `yaml:"pending"`
	Processing string `yaml:"processing"`
	Published  string `yaml:"published"`
	Dead       string `yaml:"dead"`
}

// Columns maps our names to the table's bare names. Empty is the same name where
// the table has it; all but ID and, without a status, PublishedAt may be absent from the table.
type Columns struct {
	ID          string `yaml:"id"`
	PublishedAt string `yaml:"published_at"`
	DeadAt      string `yaml:"dead_at"`
	EventID     string `yaml:"event_id"`
	EventType   string `yaml:"event_type"`
	OrderingKey string `yaml:"ordering_key"`
	Payload     string `yaml:"payload"`
	Headers     string `yaml:"headers"`
	AvailableAt string `yaml:"available_at"`
	CreatedAt   string `yaml:"created_at"`
	UpdatedAt   string `yaml:"updated_at"` // of a table with a status
	// What follows is only written.
	Attempts      string `yaml:"attempts"`
	NextAttemptAt string `yaml:"next_attempt_at"`
	LastError     string `yaml:"last_error"`
	ClaimedAt     string `yaml:"claimed_at"`
}

// Route sends rows of a kind to a destination; the first that matches wins.
type Route struct {
	Kind       string            `yaml:"kind"` // `*` is any run of characters
	To         string            `yaml:"to"`
	Order      string            `yaml:"order"`    // "key" (default) | "none"
	OnDead     string            `yaml:"on_dead"`  // "release" (default) | "block"
	Delivery   string            `yaml:"delivery"` // "at_least_once" (default) | "at_most_once", which mail always has
	Body       string            `yaml:"body"`
	Group      string            `yaml:"group"`
	DedupID    string            `yaml:"dedup_id"`
	Attributes map[string]string `yaml:"attributes"`
	Delay      string            `yaml:"delay"`
	Line       int               `yaml:"-"`
}

// HTTP is the admin server.
type HTTP struct {
	Addr string `yaml:"addr"` // empty: none
}

// Log is the log's level and form.
type Log struct {
	Level  string `yaml:"level"`  // trace | debug | info | warn | error
	Format string `yaml:"format"` // json | console
}

// Secret is a string that prints as stars.
type Secret string

// String hides the secret from fmt, logs and errors.
func (Secret) String() string { return "***" }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return "***" }

// MarshalText hides the secret from JSON, YAML and structured logs.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Duration is a time.Duration that YAML writes with its unit: 250ms, 1m, 168h.
type Duration time.Duration

// Size is a number of bytes that YAML writes with its unit: 64MiB, 1GiB.
type Size int64
