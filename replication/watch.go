package replication

import (
	"context"
	"errors"
	"time"
)

var (
	errPublicationChanged = errors.New("the publication no longer carries every outbox")
	errOverBudget         = errors.New("the slot holds back more WAL than max_retained_wal")
)

// watch looks, at an interval and on a connection of its own each time, for what
// breaks no stream and yet must end it: a table taken out of the publication, and a
// slot that costs too much. Its error is the reason; the next preflight mends it.
func (s *Stream) watch(ctx context.Context) error {
	tick := time.NewTicker(s.timing.watchEvery)
	defer tick.Stop()
	over := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		seen, err := s.look(ctx)
		if err != nil {
			// The stream notices by itself when the server is gone.
			s.cfg.Log.Debug().Err(err).Msg("the watch could not look")
			continue
		}
		if seen.changed {
			return errPublicationChanged
		}
		// restart_lsn moves in steps of up to 15 s while we keep up, so that a burst looks
		// like a slot that holds WAL back. Twice in a row is none.
		if seen.over && over {
			return errOverBudget
		}
		over = seen.over
	}
}

type sighting struct{ changed, over bool }

func (s *Stream) look(ctx context.Context) (sighting, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	sql, err := s.connectSQL(ctx)
	if err != nil {
		return sighting{}, err
	}
	defer closeConn(sql.PgConn())
	p, err := readPublication(ctx, sql, s.cfg.Publication, s.cfg.Tables)
	if err != nil {
		return sighting{}, err
	}
	st, err := Inspect(ctx, sql, s.cfg.Slot)
	if err != nil {
		return sighting{}, err
	}
	return sighting{
		changed: !p.exists || p.notCarried() != nil,
		over:    st.overBudget(s.cfg.MaxRetainedWAL),
	}, nil
}
