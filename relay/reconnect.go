package relay

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// reconnect waits between tries at a server that is gone, for as long as it takes, and logs changes only.
type reconnect struct {
	wait time.Duration
	text string
	log  zerolog.Logger
}

const (
	reconnectFirst = 100 * time.Millisecond
	reconnectMost  = 5 * time.Second
)

func newReconnect(log zerolog.Logger) *reconnect { return &reconnect{log: log} }

func (r *reconnect) after(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if text := PublicError(err); text != r.text {
		r.text = text
		r.log.Error().Str("error", text).Msg("PostgreSQL is out of reach; trying again")
	}
	r.pause(ctx)
}

// pause waits, twice as long each time.
func (r *reconnect) pause(ctx context.Context) {
	r.wait = min(max(reconnectFirst, 2*r.wait), reconnectMost)
	select {
	case <-ctx.Done():
	case <-time.After(r.wait):
	}
}

func (r *reconnect) reset() {
	if r.wait > 0 {
		r.log.Info().Msg("PostgreSQL is back")
	}
	r.wait, r.text = 0, ""
}
