package check

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// stepTimeout bounds each step. The server ends a slow statement before it, so that the session survives.
const (
	stepTimeout      = 10 * time.Second
	statementTimeout = "9s"
)

// Input is what there is to look at.
type Input struct {
	Config *config.Config
	// Conn is where PostgreSQL is.
	Conn         *pgx.ConnConfig
	Destinations []Destination
}

// Destination is one destination, in the order that gives their indexes.
type Destination struct {
	relay.Sink
	Config    config.Destination
	Publisher relay.Publisher // not open yet; Run closes it. Nil: it could not be made, see Err
	Err       error
	// Notes are the warnings that the publisher has logged; nil if nobody listens.
	Notes func() []string
}

// Run looks at everything. It never writes.
func Run(ctx context.Context, in Input) Report {
	destinations := make(chan []Line, 1)
	go func() { destinations <- checkDestinations(ctx, in.Destinations) }()
	lines := []Line{ok("config", "is valid: %d outboxes, %d destinations", len(in.Config.Outboxes), len(in.Config.Destinations))}
	lines = append(lines, checkHTTP(ctx, in.Config.HTTP.Addr)...)
	lines = append(lines, checkDatabase(ctx, in)...)
	return Report{Lines: append(lines, <-destinations...)}
}

// doctor looks at the database, step by step, on one session.
type doctor struct {
	in    Input
	conn  *pgx.Conn
	lines []Line

	server serverFacts
	schema Line           // of the schema pgrelay: what needs it can't be looked at before it is in order
	tables []*relay.Table // those that could be opened
}

func checkDatabase(ctx context.Context, in Input) []Line {
	conn, err := connect(ctx, in.Conn)
	if err != nil {
		return []Line{judgeConnect(err, in.Conn.User, in.Conn.Database), skipped("database", "nothing in it can be looked at without a connection")}
	}
	d := &doctor{in: in, conn: conn, server: serverFacts{Role: in.Conn.User}}
	defer relay.CloseSession(conn)
	d.checkTables(ctx)
	for _, t := range d.tables {
		if t.Conditional() {
			d.step(ctx, "outbox "+t.Name, func(ctx context.Context) error { return d.checkLook(ctx, t) })
		}
	}
	if !in.Config.Replication.Enabled {
		d.add(skipped("replication", "replication.enabled is false: the poller relays alone"))
		return d.lines
	}
	if d.server.WALLevel == "" {
		d.add(skipped("replication", "cannot be judged without the server's settings"))
		return d.lines
	}
	d.add(judgeWALLevel(d.server))
	d.step(ctx, "slot", d.checkSlot)
	d.step(ctx, "publication", d.checkPublication)
	return d.lines
}

// checkTables looks at what the relay needs whatever wakes it.
func (d *doctor) checkTables(ctx context.Context) {
	d.step(ctx, "server", d.checkServer)
	d.step(ctx, "schema pgrelay", d.checkSchema)
	for _, o := range d.in.Config.Outboxes {
		d.step(ctx, "outbox "+o.Table, func(ctx context.Context) error { return d.checkOutbox(ctx, o) })
	}
}

func (d *doctor) add(lines ...Line) { d.lines = append(d.lines, lines...) }

// step runs one part within its time. One that can't look is a failure by itself.
func (d *doctor) step(ctx context.Context, name string, look func(context.Context) error) {
	if d.conn.IsClosed() {
		d.add(skipped(name, "the connection to PostgreSQL was lost"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := look(ctx); err != nil {
		d.add(failure(name, "see the server's log, and run `pgrelay check` again", "cannot be looked at: %s", relay.PublicError(err)))
	}
}
