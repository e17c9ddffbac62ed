package status

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"pgrelay/relay"
)

// interval between samples: counts walk the backlog, up to a cap, so they are not free.
const interval = 15 * time.Second

// Sampler keeps the gauges that only the database can tell. A replica that stands by samples as well: a slot
// grows whoever leads.
type Sampler struct {
	conn   *pgx.ConnConfig
	slot   string
	tables []*relay.Table
	log    zerolog.Logger
	gauges *gauges
}

// NewSampler builds a sampler. slot is empty where replication is off.
func NewSampler(conn *pgx.ConnConfig, slot string, tables []*relay.Table, reg prometheus.Registerer, log zerolog.Logger) *Sampler {
	return &Sampler{conn: conn, slot: slot, tables: tables, log: log, gauges: newGauges(reg)}
}

// Run samples until ctx ends, and returns nil.
func (s *Sampler) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var conn *pgx.Conn
	failing := ""
	for {
		var err error
		if conn, err = s.sample(ctx, conn); err != nil && ctx.Err() == nil {
			if text := relay.PublicError(err); text != failing {
				failing = text
				s.log.Warn().Str("error", text).Msg("gauges can't be sampled; trying again")
			}
		} else {
			failing = ""
		}
		select {
		case <-ctx.Done():
			relay.CloseSession(conn)
			return nil
		case <-tick.C:
		}
	}
}

// sample takes one sample on the connection, made anew if need be, and returns the one to go on with.
func (s *Sampler) sample(ctx context.Context, conn *pgx.Conn) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	if conn == nil || conn.IsClosed() {
		var err error
		if conn, err = pgx.ConnectConfig(ctx, relay.SessionConfig(s.conn, "pgrelay sampler")); err != nil {
			return nil, err
		}
	}
	status, err := Read(ctx, conn, s.slot, s.tables)
	s.gauges.set(status)
	return conn, err
}
