package poller

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"pgrelay/relay"
)

// do does a visit's task. What is due goes first: it has waited longest.
func (p *Poller) do(ctx context.Context, conn *pgx.Conn, w *watch, t *task) error {
	if t.due {
		if err := p.lookDue(ctx, conn, w); err != nil {
			return err
		}
	}
	for sink, l := range t.sinks {
		ended, err := p.look(ctx, conn, w, l, only(sink))
		if err != nil {
			return err
		}
		if !ended {
			w.rests = with(w.rests, sink, l)
		}
	}
	switch {
	case t.full:
		if err := p.lookFull(ctx, conn, w, t); err != nil {
			return err
		}
	case t.pass:
		if err := p.marked(ctx, conn, w, t); err != nil {
			return err
		}
	}
	if t.sweep {
		if err := p.sweep(ctx, conn, w); err != nil {
			return err
		}
		w.sweepAt = time.Now().Add(p.cfg.SweepInterval)
	}
	return nil
}

// lookFull looks at every pending row from the beginning.
func (p *Poller) lookFull(ctx context.Context, conn *pgx.Conn, w *watch, t *task) error {
	w.mark, w.rest = mark{}, nil
	return p.marked(ctx, conn, w, t)
}

// marked looks from the mark, or goes on with a look that was broken off, and lets the mark rise.
func (p *Poller) marked(ctx context.Context, conn *pgx.Conn, w *watch, t *task) error {
	l := look{}
	if w.mark.at != "" {
		l.from = []string{w.mark.at}
	}
	if w.rest != nil {
		l, w.rest = *w.rest, nil
	}
	ended, err := p.look(ctx, conn, w, &l, nil)
	if err != nil {
		return err
	}
	t.took = l.result.took
	if !ended {
		w.rest = &l
		return nil
	}
	if w.table.KeyGivesOrder() {
		w.mark.looked(l.result)
	}
	return nil
}

// look is how far a look of several pages has come.
type look struct {
	from    []string // the place behind which it goes on
	started bool
	result  lookResult
}

// lookResult is what a look saw.
type lookResult struct {
	highest    string        // the table's highest id in the first snapshot, empty if there is none
	xmin, xmax uint64        // of the first page's snapshot and of the last one's
	took       time.Duration // in the server, without waiting for room
}

// lookSlice is how long a look may keep the other tables and what is due waiting; then it is broken off, and goes on at the next
// visit.
const lookSlice = 200 * time.Millisecond

// look offers pending rows, page by page, until there are no more (or nobody takes more: both end it) or its slice of time is over. sees, if
// given, restricts it to some destinations' rows.
func (p *Poller) look(ctx context.Context, conn *pgx.Conn, w *watch, l *look, sees func(sink int) bool) (ended bool, err error) {
	t := w.table
	for until := time.Now().Add(lookSlice); time.Now().Before(until); {
		rooms, open := p.rooms(t, sees)
		if !open {
			return true, nil
		}
		began := time.Now()
		args := []any{rooms}
		sql := w.looks().FirstLook()
		if l.from != nil {
			sql, args = w.looks().NextLook(), append(args, l.from)
		}
		ids, last, snap, err := page(ctx, conn, sql, args)
		if err != nil {
			return false, err
		}
		l.result.took += time.Since(began)
		l.result.xmax = snap.xmax
		if !l.started {
			l.started, l.result.xmin, l.result.highest = true, snap.xmin, snap.highest
		}
		p.metrics.found(t.Name, lookPending, len(ids))
		if err := p.relay.Offer(ctx, t, ids); errors.Is(err, relay.ErrNoRoom) {
			return false, nil // this page again at the next visit
		} else if err != nil {
			return false, err
		}
		if len(ids) < relay.LookSize {
			return true, nil
		}
		l.from = last
	}
	return false, nil
}

type snapshot struct {
	highest    string
	xmin, xmax uint64
}

// page runs one look; its last row is the snapshot, and last the place of the row before.
func page(ctx context.Context, conn *pgx.Conn, sql string, args []any) (ids, last []string, snap snapshot, err error) {
	ctx, cancel := statement(ctx)
	defer cancel()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, nil, snap, err
	}
	var id *string
	var xmin, xmax *uint64
	var at []string
	_, err = pgx.ForEachRow(rows, []any{&id, &xmin, &xmax, &at}, func() error {
		switch {
		case xmin == nil:
			ids, last = append(ids, *id), at
		case id != nil:
			snap = snapshot{*id, *xmin, *xmax}
		default:
			snap = snapshot{"", *xmin, *xmax}
		}
		return nil
	})
	return ids, last, snap, err
}

// rooms are the rooms of the destinations that a look sees, and whether any of them takes rows.
func (p *Poller) rooms(t *relay.Table, sees func(sink int) bool) (rooms []int32, open bool) {
	rooms = p.relay.Rooms(t)
	for _, sink := range t.Sinks() {
		if sees != nil && !sees(sink) {
			rooms[sink] = 0
		}
	}
	for _, sink := range t.Sinks() {
		open = open || rooms[sink] > 0
	}
	return rooms, open
}

func only(sink int) func(int) bool { return func(s int) bool { return s == sink } }
