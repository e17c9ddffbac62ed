package replication

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"pgrelay/relay"
)

const (
	applicationName = "pgrelay stream"
	plugin          = "pgoutput"
	connectTimeout  = 10 * time.Second
)

// Config is what a [Stream] needs to know.
type Config struct {
	// Conn is where PostgreSQL is; it is copied. It must lead to the server itself, not to a pooler.
	Conn        *pgx.ConnConfig
	Slot        string
	Publication string
	// Temporary makes a slot that ends with its connection.
	Temporary bool
	// Failover asks for a slot that standbys synchronize: PostgreSQL 17 and later, not temporary.
	Failover bool
	// MaxRetainedWAL is the WAL in bytes that the slot may hold back before it is replaced; 0 is no limit.
	MaxRetainedWAL int64
	Tables         []Table
	Log            zerolog.Logger
	Metrics        *Metrics
}

// Table is one table whose inserts are wanted. Names are as in the catalog, unquoted.
type Table struct {
	Schema   string
	Name     string
	IDColumn string
	// Canonical is what the table is called towards the sink and in logs.
	Canonical string
}

// Sink takes ids from the stream. Its methods are called from the one goroutine that
// owns the connection and never block.
type Sink interface {
	// Inserted hands over one row's id with its transaction; false says that the queue
	// was full and the id was dropped (the sink itself sees to a catch-up).
	Inserted(table string, id string, xid uint32, commitLSN uint64, commitTime time.Time) bool
	// CatchUp says that rows may have been missed: after (re)connecting, a new slot, an
	// altered publication.
	CatchUp(reason string)
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (c *Config) validate() error {
	var errs []error
	if c.Conn == nil {
		errs = append(errs, errors.New("no connection is configured"))
	}
	// Slot names go into replication commands as they are, so this is also what keeps SQL out.
	if !slotName.MatchString(c.Slot) {
		errs = append(errs, fmt.Errorf("slot %q: a slot's name is 1 to 63 of a-z, 0-9 and _", c.Slot))
	}
	if n := len(c.Publication); n == 0 || n > 63 {
		errs = append(errs, fmt.Errorf("publication %q: a name is 1 to 63 bytes", c.Publication))
	}
	if len(c.Tables) == 0 {
		errs = append(errs, errors.New("no table is configured"))
	}
	if c.Metrics == nil {
		errs = append(errs, errors.New("no metrics are configured"))
	}
	return errors.Join(errs...)
}

// sqlConfig is for the short-lived ordinary connections of the preflight and the watch.
func sqlConfig(base *pgx.ConnConfig) *pgx.ConnConfig {
	c := base.Copy()
	fixSession(&c.Config)
	setParam(&c.Config, "statement_timeout", "10s")
	setParam(&c.Config, "lock_timeout", "5s")
	setParam(&c.Config, "synchronous_commit", "local") // a publication waits for no standby, which may be absent
	// Each statement is used once per connection: preparing it is a round trip for nothing.
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	return c
}

// streamConfig is for the connection that carries the stream.
func streamConfig(base *pgx.ConnConfig) *pgconn.Config {
	c := &base.Copy().Config
	fixSession(c)
	setParam(c, "replication", "database")
	// A role's own timeouts are meant for its queries and would end the decoding.
	setParam(c, "statement_timeout", "0")
	setParam(c, "lock_timeout", "0")
	return c
}

// fixSession makes the text of values independent of what the role, the database or
// the URL sets: a walsender renders by the settings of its session.
func fixSession(c *pgconn.Config) {
	for name, value := range map[string]string{
		"application_name":   applicationName,
		"client_encoding":    "UTF8",
		"DateStyle":          "ISO, YMD",
		"IntervalStyle":      "postgres",
		"TimeZone":           "UTC",
		"bytea_output":       "hex",
		"extra_float_digits": "1",
		// A role that is read-only by default would make no publication.
		"default_transaction_read_only": "off",
	} {
		setParam(c, name, value)
	}
	if c.ValidateConnect == nil {
		// A standby has no publication to make; with several hosts the next is tried.
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	c.AfterConnect = relay.AsStored
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
}

// setParam replaces a setting however its name was spelt before.
func setParam(c *pgconn.Config, name, value string) {
	maps.DeleteFunc(c.RuntimeParams, func(k, _ string) bool { return strings.EqualFold(k, name) })
	c.RuntimeParams[name] = value
}
