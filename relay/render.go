package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Rendered is the message that a row goes out as, and where it goes. Where the row can never be sent, Rejection says why, and what
// could not be made is empty.
type Rendered struct {
	Table       string `json:"table"`
	ID          string `json:"id"`
	Kind        string `json:"kind"`
	Destination string `json:"destination,omitempty"` // empty: no route takes the kind
	EventID     string `json:"event_id,omitempty"`
	Group       string `json:"group,omitempty"`
	DedupID     string `json:"dedup_id,omitempty"`
	// Recipients of mail, in the order in which they get it.
	Recipients []string `json:"recipients,omitempty"`
	// DelaySeconds is the message's own, beside what its queue has.
	DelaySeconds float64     `json:"delay_seconds"`
	Attributes   []Attribute `json:"attributes"` // in their order
	Body         string      `json:"body"`
	Bytes        int         `json:"bytes"` // as the destination counts them
	Rejection    *Rejection  `json:"rejection,omitempty"`
}

// renderSQL reads one row as the claim does, in the columns of scanDelivery. It takes no lock and asks for no mark. $1 its key.
func renderSQL(t *Table) string {
	return `
SELECT 0::bigint, p.id::text, p.version, p.version, p.route, p.line IS NOT NULL, p.okey, p.event_id::text, coalesce(p.kind::text, ''), ` + contentText(t) + `,
       0, 0, 0, coalesce(p.generation, 0), false, 0::bigint, false, NULL::float8, ''
  FROM (SELECT @o.id AS id, o.xmin::text AS version, @mayberoute AS route, dt.line, @o.key::text AS okey, @o.event_id AS event_id, @o.kind AS kind,
               ` + contentColumns(t) + `, f.generation
          FROM @outbox o @o.maybe LEFT JOIN pgrelay.failures f ON f.outbox = @name AND f.row_id = @o.id::text
         WHERE @o.id = $1::text::@keytype) p`
}

// Render makes the message of a row, settled or not, and has its destination look at it. It sends and writes nothing. A row that isn't
// there is a *NotFoundError. destinations are those that the table was opened with.
func (t *Table) Render(ctx context.Context, conn *pgx.Conn, id string, destinations []Destination) (Rendered, error) {
	rows, err := conn.Query(ctx, expander(t).Replace(renderSQL(t)), id)
	if err != nil {
		return Rendered{}, t.explain(err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (*delivery, error) { return scanDelivery(row, t) })
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Rendered{}, &NotFoundError{fmt.Sprintf("outbox %s has no row with id %s", t.Name, id)}
	case err != nil:
		return Rendered{}, t.explain(err)
	}
	r := Rendered{Table: t.Name, ID: d.row.ID, Kind: d.row.Kind, Attributes: []Attribute{}}
	if d.route >= 0 {
		r.Destination = t.cfg.Routes[d.route].To
	}
	m, err := compose(t, d.route, &d.row, destinations)
	if err != nil {
		why := rejected(err)
		r.Rejection = &Rejection{why.Reason, why.Detail}
	}
	if m != nil {
		to := destinations[t.sinks[d.route]].Publisher
		r.EventID, r.Group, r.DedupID, r.DelaySeconds = m.EventID, m.Group, m.DedupID, m.Delay.Seconds()
		r.Attributes, r.Body, r.Bytes = m.Attributes, m.Body, to.Size(m)
		if mail, ok := to.(Addressed); ok && err == nil {
			r.Recipients = mail.Recipients(m)
		}
	}
	return r, nil
}

// compose makes the message of a row as its route and destination want it. A row that can never be sent is a *Rejection, with the
// message if it is its destination that refuses it.
func compose(t *Table, route int, row *Row, destinations []Destination) (*Message, error) {
	switch {
	case route == routeUnjoined:
		return nil, &Rejection{"join_empty", "the join finds nothing for the row, so it waits until it does"}
	case route == routeSeveral:
		return nil, &Rejection{"join_ambiguous", "the join finds several rows for it, and a message is made of one"}
	case route < 0:
		return nil, &Rejection{"unknown_kind", fmt.Sprintf("no route of outbox %s matches the kind %q", t.Name, row.Kind)}
	}
	to := destinations[t.sinks[route]]
	m, err := t.builder.build(route, row, to.FIFO)
	if err != nil {
		return nil, err
	}
	return m, to.Publisher.Check(m)
}
