package check

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// Start looks at what a relay that starts shall say: what is in the way of its sessions, what its role lacks, what would make it slow,
// and what bounds its slot. It returns warnings and failures. An error is a schema pgrelay that it can't work with.
func Start(ctx context.Context, conn *pgx.Conn, cfg *config.Config, sinks []relay.Sink) ([]Line, error) {
	d := &doctor{in: Input{Config: cfg}, conn: conn, server: serverFacts{Role: conn.Config().User}}
	for _, sink := range sinks {
		d.in.Destinations = append(d.in.Destinations, Destination{Sink: sink})
	}
	d.checkTables(ctx)
	if d.schema.Level == Failure {
		return nil, errors.New(d.schema.String())
	}
	if cfg.Replication.Enabled {
		d.add(judgeKeepSize(d.server.KeepSize, cfg.Replication.Temporary))
	}
	var known []Line
	for _, l := range d.lines {
		if l.Level == Warning || l.Level == Failure {
			known = append(known, l)
		}
	}
	return known, nil
}

// Connection says why there is no connection.
func Connection(err error, to *pgx.ConnConfig) Line { return judgeConnect(err, to.User, to.Database) }

// Address says why the admin server has no address.
func Address(addr string, err error) Line { return judgeHTTP(addr, err, false) }
