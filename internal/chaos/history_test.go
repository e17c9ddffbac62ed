package chaos_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// history is all that is known when a run has ended. The checks read nothing else.
type history struct {
	log     []entry // in the order in which the database did it
	sends   []*send // in the order in which they reached the SQS
	rows    map[rowID]*row
	byEvent map[string]*row
	arrived []string         // events in the order in which the FIFO queue, or the mail server, took them
	claims  map[sendKey]bool // claims of sends: whether they were made
	ledger  map[string]bool  // events
	lives   map[string]life
	faults  []applied
}

// sendKey is what is sent at most once.
type sendKey struct{ event, recipient string }

// rowID names a row of an outbox.
type rowID struct {
	outbox string
	id     int64
}

// entry is one line of the log that the triggers write.
type entry struct {
	seq       int64
	at, began time.Time // when it was written, when its transaction began
	what      string    // insert, update, claim, lead; send claimed, made, released, unknown; recorded, struck; died, let go
	process   string    // empty: writers and people
	row       rowID
	epoch     int64
	version   int
	pending   bool
	event     string // of sends and of the ledger
	recipient string
}

// row is an outbox row as it was in the end, with all that happened to it.
type row struct {
	rowID
	event, key, topic string
	due               *time.Time // or when it became ready
	published, dead   bool
	uncertain         bool     // and not dead
	reason, detail    string   // of its death
	recipients        []string // where it goes at most once: those of its mails, or the destination
	log               []*entry
	sends             []*send // those that were stored
	refused           bool    // for good, at least once
}

// life is that of one process.
type life struct {
	began, ended time.Time // ended: zero while it ran
	unfinished   bool      // it left rows in flight to others
}

const rowsSQL = `
SELECT 'pgrelay.outbox_events', o.id, o.event_id::text, coalesce(o.ordering_key, ''), o.event_type, o.available_at,
       o.published_at IS NOT NULL, o.dead_at IS NOT NULL AND f.uncertain IS NOT TRUE, o.dead_at IS NOT NULL AND coalesce(f.uncertain, false),
       coalesce(f.reason, ''), coalesce(f.detail, ''), ARRAY(SELECT jsonb_array_elements_text(o.payload -> 'to'))
  FROM pgrelay.outbox_events o LEFT JOIN pgrelay.failures f ON f.outbox = 'pgrelay.outbox_events' AND f.row_id = o.id::text AND f.dead_at IS NOT NULL
 UNION ALL
SELECT 'public.mail', o.id, o.message::text, coalesce(o.customer, ''), o.topic, NULL,
       o.sent_at IS NOT NULL, o.sent_at IS NOT NULL AND f.row_id IS NOT NULL, false, coalesce(f.reason, ''), '', '{}'
  FROM public.mail o LEFT JOIN pgrelay.failures f ON f.outbox = 'public.mail' AND f.row_id = o.id::text AND f.dead_at IS NOT NULL
 UNION ALL
SELECT 'public.backfill', o.id, o.task::text, '', task.topic, task.opened,
       o.state = 'PUBLISHED', o.state = 'FAILED' AND f.uncertain IS NOT TRUE, coalesce(f.uncertain, false), coalesce(f.reason, ''), '', ARRAY['queue']
  FROM public.backfill o JOIN chaos.tasks task ON task.id = o.task
  LEFT JOIN pgrelay.failures f ON f.outbox = 'public.backfill' AND f.row_id = o.id::text AND f.dead_at IS NOT NULL`

// read collects the history of a world in which nothing happens any more.
func (w *world) read(ctx context.Context) (*history, error) {
	conn, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer closeConn(conn)
	h := &history{
		rows: map[rowID]*row{}, lives: map[string]life{}, claims: map[sendKey]bool{}, ledger: map[string]bool{}, sends: w.answers.sends, faults: w.applied,
	}
	rows, err := conn.Query(ctx, rowsSQL)
	if err != nil {
		return nil, err
	}
	var r row
	_, err = pgx.ForEachRow(rows, []any{&r.outbox, &r.id, &r.event, &r.key, &r.topic, &r.due, &r.published, &r.dead, &r.uncertain, &r.reason, &r.detail, &r.recipients}, func() error {
		one := r
		one.recipients = slices.Clone(r.recipients)
		h.rows[r.rowID] = &one
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows, err = conn.Query(ctx, `SELECT seq, at, began, what, process, outbox, id, epoch, version, pending, event, recipient FROM chaos.log ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	var e entry
	_, err = pgx.ForEachRow(rows, []any{&e.seq, &e.at, &e.began, &e.what, &e.process, &e.row.outbox, &e.row.id, &e.epoch, &e.version, &e.pending, &e.event, &e.recipient}, func() error {
		h.log = append(h.log, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := h.readOnce(ctx, conn); err != nil {
		return nil, err
	}
	for _, m := range w.mail.Mails() {
		h.arrived = append(h.arrived, eventOf(m.To))
	}
	for _, m := range w.sqs.Messages(fifoQueue) {
		h.arrived = append(h.arrived, m.Attributes["event_id"].Value)
	}
	for _, i := range w.instances {
		for _, r := range i.all() {
			h.lives[r.name] = r.life()
		}
	}
	h.link()
	return h, nil
}

// readOnce collects what keeps messages from being sent again.
func (h *history) readOnce(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT event_id, recipient, sent_at IS NOT NULL FROM pgrelay.notification_sends`)
	if err != nil {
		return err
	}
	var key sendKey
	var made bool
	if _, err = pgx.ForEachRow(rows, []any{&key.event, &key.recipient, &made}, func() error { h.claims[key] = made; return nil }); err != nil {
		return err
	}
	rows, err = conn.Query(ctx, `SELECT event_id FROM pgrelay.processed_events`)
	if err != nil {
		return err
	}
	var event string
	_, err = pgx.ForEachRow(rows, []any{&event}, func() error { h.ledger[event] = true; return nil })
	return err
}

func (r *run) life() life {
	select {
	case <-r.exited:
		return life{r.started, r.ended, r.unfinished()}
	default:
		return life{began: r.started}
	}
}

// link ties log and sends to their rows, and each send to the claim that it was made under.
func (h *history) link() {
	h.byEvent = map[string]*row{}
	for _, r := range h.rows {
		h.byEvent[r.event] = r
	}
	for i := range h.log {
		r := h.rows[h.log[i].row]
		if event := h.log[i].event; event != "" {
			r = h.byEvent[event]
		}
		if r != nil {
			r.log = append(r.log, &h.log[i])
		}
	}
	seen := map[string]time.Time{}
	for _, s := range h.sends {
		r := h.byEvent[s.event]
		if r == nil {
			continue // a check tells
		}
		r.refused = r.refused || s.rejected
		if r.once() && s.recipient == "" {
			s.recipient = r.recipients[0]
		}
		for _, e := range r.log {
			if s.queue == mailServer && e.what == "send claimed" && e.recipient == s.recipient && e.at.Before(s.at) {
				s.process = e.process // a mail doesn't say
			}
		}
		for _, e := range r.log {
			if e.what == "claim" && e.process == s.process && e.at.Before(s.at) {
				s.claim = e
			}
		}
		if !s.stored {
			continue
		}
		r.sends = append(r.sends, s)
		if s.dedup != "" {
			first, ok := seen[s.dedup]
			if s.dropped = ok && s.at.Sub(first) < 5*time.Minute; !s.dropped {
				seen[s.dedup] = s.at
			}
		}
	}
}

// line is something that happened, for people.
type line struct {
	at   time.Time
	text string
}

// around tells all that is known of rows and of what went on meanwhile.
func (h *history) around(ids ...rowID) string {
	var lines []line
	for _, id := range ids {
		if r := h.rows[id]; r != nil {
			lines = append(lines, h.story(r)...)
		}
	}
	if len(lines) == 0 {
		return "nothing is known of it\n"
	}
	slices.SortFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	from, to := lines[0].at.Add(-5*time.Second), lines[len(lines)-1].at.Add(time.Second)
	for _, e := range h.log {
		if e.what == "lead" {
			lines = append(lines, line{e.at, fmt.Sprintf("%s takes the lead, epoch %d", e.process, e.epoch)})
		}
	}
	for name, l := range h.lives {
		lines = append(lines, line{l.began, name + " starts"}, line{l.ended, fmt.Sprintf("%s ends (unfinished: %t)", name, l.unfinished)})
	}
	for _, f := range h.faults {
		lines = append(lines, line{f.began, fmt.Sprintf("-- %s: %s begins %v", f.kind, f.target, orNil(f.err))}, line{f.ended, fmt.Sprintf("-- %s: %s ends", f.kind, f.target)})
	}
	lines = slices.DeleteFunc(lines, func(l line) bool { return l.at.Before(from) || l.at.After(to) })
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at.UnixMicro(), b.at.UnixMicro()) })
	var text strings.Builder
	for _, l := range lines[:min(len(lines), 150)] {
		fmt.Fprintf(&text, "    %s  %s\n", l.at.Format("15:04:05.000000"), l.text)
	}
	return text.String()
}

func orNil(err error) any {
	if err != nil {
		return err
	}
	return ""
}

// story is what happened to one row.
func (h *history) story(r *row) []line {
	var lines []line
	name := fmt.Sprint(r.outbox, " ", r.id)
	for _, e := range r.log {
		lines = append(lines, line{e.at, fmt.Sprintf("%s: %s %s by %q, version %d, pending %t, epoch %d (log %d)", name, e.what, e.recipient, e.process, e.version, e.pending, e.epoch, e.seq)})
	}
	for _, s := range h.sends {
		if s.event == r.event {
			lines = append(lines, line{s.at, fmt.Sprintf("%s: sent by %s to %s %s, version %d, call %d, group %q, dedup %q, fate %q, stored %t (dropped %t), told %t",
				name, s.process, s.queue, s.recipient, s.version, s.call, s.group, s.dedup, s.fate, s.stored, s.dropped, s.told)})
		}
	}
	return lines
}
