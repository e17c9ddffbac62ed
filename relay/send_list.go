package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Send is a claim of a send as people see it.
type Send struct {
	Sends     string     `json:"sends"` // the table of claims
	EventID   string     `json:"event_id"`
	Recipient string     `json:"recipient"`
	Kind      string     `json:"kind"`
	State     SendState  `json:"state"`
	ClaimedAt *time.Time `json:"claimed_at,omitempty"`
	SentAt    *time.Time `json:"sent_at,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	// Table and ID are the event's row, where there is one.
	Table string `json:"table,omitempty"`
	ID    string `json:"id,omitempty"`
}

// SendState is what is known of a send.
type SendState string

// The states of a send.
const (
	SendSent      SendState = "sent"
	SendPending   SendState = "pending"   // its event is in flight, or will be tried
	SendUncertain SendState = "uncertain" // nobody knows whether it arrived, and nothing will find out
)

// SendsShown is the most claims that ListSends returns unless it is asked for the uncertain ones.
const SendsShown = 1000

// eventRow is the outbox row of an event.
type eventRow struct {
	table     *Table
	id, event string
	pending   bool
	flying    bool
	uncertain bool
	dead      bool
}

// ListSends lists the claims of the outboxes' tables of sends, the newest first, or all that are uncertain: those without sent_at whose event
// is neither in flight nor pending, and events that failures calls uncertain. It reads in one snapshot.
func ListSends(ctx context.Context, conn *pgx.Conn, tables []*Table, uncertain bool) (all []Send, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, group := range bySends(tables) {
			sends, err := listClaims(ctx, tx, group[0].Sends, uncertain)
			if err != nil {
				return err
			}
			events := make([]string, len(sends))
			for i, s := range sends {
				events[i] = s.EventID
			}
			slices.Sort(events)
			for _, t := range group {
				rows, err := t.rowsOf(ctx, tx, slices.Compact(events))
				if err != nil {
					return err
				}
				for i := range sends {
					sends[i].know(rows[sends[i].EventID])
				}
			}
			if !uncertain {
				all = append(all, sends...)
				continue
			}
			sends = slices.DeleteFunc(sends, func(s Send) bool { return s.State != SendUncertain })
			for _, t := range group {
				if sends, err = t.addUncertain(ctx, tx, sends); err != nil {
					return err
				}
			}
			all = append(all, sends...)
		}
		return nil
	})
	return all, err
}

// bySends groups outboxes that send at most once by their tables of claims.
func bySends(tables []*Table) (groups [][]*Table) {
	for _, t := range tables {
		if t.Sends == nil {
			continue
		}
		i := slices.IndexFunc(groups, func(g []*Table) bool { return g[0].Sends.Name == t.Sends.Name })
		if i < 0 {
			groups = append(groups, []*Table{t})
			continue
		}
		groups[i] = append(groups[i], t)
	}
	return groups
}

func listClaims(ctx context.Context, tx pgx.Tx, s *SendTable, uncertain bool) ([]Send, error) {
	claimed, lastError := "NULL::timestamptz", "''"
	if s.claimedAt != "" {
		claimed = finite("s." + quote(s.claimedAt))
	}
	if s.lastError != "" {
		lastError = fmt.Sprintf("coalesce(s.%s::text, '')", quote(s.lastError))
	}
	which := fmt.Sprintf("ORDER BY 4 DESC NULLS LAST, 1, 2 LIMIT %d", SendsShown)
	if uncertain {
		which = fmt.Sprintf("WHERE s.%s IS NULL ORDER BY 4, 1, 2", quote(s.sentAt))
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(`SELECT s.%s::text, s.%s::text, s.%s::text, %s, %s, s.%s IS NOT NULL, %s FROM %s s %s`,
		quote(s.eventID), quote(s.recipient), quote(s.eventType), claimed, finite("s."+quote(s.sentAt)), quote(s.sentAt), lastError, s.Name, which))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Name, err)
	}
	sends, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Send, error) {
		one, sent := Send{Sends: s.Name, State: SendUncertain}, false
		err := row.Scan(&one.EventID, &one.Recipient, &one.Kind, &one.ClaimedAt, &one.SentAt, &sent, &one.LastError)
		if sent {
			one.State = SendSent
		}
		return one, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Name, err)
	}
	return sends, nil
}

// know takes in what the rows of its event say of a send.
func (s *Send) know(rows []eventRow) {
	for _, r := range rows {
		s.Table, s.ID = r.table.Name, r.id
		if s.State == SendUncertain && (r.pending || r.flying) {
			s.State = SendPending
		}
	}
}

// eventRowsSQL finds the rows of events ($1).
const eventRowsSQL = `
SELECT g.event, @o.id::text, coalesce(@o.unsettled, false), EXISTS (SELECT FROM pgrelay.claims c WHERE c.outbox = @name AND @o.id::text = ANY (c.ids)),
       coalesce(f.uncertain, false), f.dead_at IS NOT NULL
  FROM unnest($1::text[]) AS g(event) JOIN @outbox o ON %s
  LEFT JOIN pgrelay.failures f ON f.outbox = @name AND f.row_id = @o.id::text`

// rowsOf finds the rows of events.
func (t *Table) rowsOf(ctx context.Context, tx pgx.Tx, events []string) (map[string][]eventRow, error) {
	rows, err := tx.Query(ctx, expander(t).Replace(fmt.Sprintf(eventRowsSQL, escape(t.ofEvent("o", "g.event")))), events)
	if err != nil {
		return nil, t.explain(err)
	}
	found := map[string][]eventRow{}
	r := eventRow{table: t}
	_, err = pgx.ForEachRow(rows, []any{&r.event, &r.id, &r.pending, &r.flying, &r.uncertain, &r.dead}, func() error {
		found[r.event] = append(found[r.event], r)
		return nil
	})
	return found, t.explain(err)
}

// ofEvent is true for the row of an event, an expression of type text: by the index of the event ids where that is possible.
func (t *Table) ofEvent(alias, event string) string {
	name := t.names.eventID
	if name == "" {
		name = t.names.id
	}
	column := alias + "." + quote(name)
	switch typ := t.identityType(); {
	case !t.identityNotNull():
		return t.identity(alias) + " = " + event
	case typ == "uuid":
		return fmt.Sprintf(`%s = CASE WHEN %s ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN %s::uuid END`, column, event, event)
	case slices.Contains(textTypes, typ):
		return column + " = " + event
	default:
		return column + "::text = " + event
	}
}

// uncertainSQL finds the rows that are uncertain.
const uncertainSQL = `
SELECT f.event_id, f.row_id, f.kind, f.detail, f.dead_at FROM pgrelay.failures f LEFT JOIN @outbox o ON @o.id = f.row_id::@keytype
 WHERE f.outbox = @name AND f.uncertain AND NOT coalesce(@o.unsettled, false) ORDER BY f.dead_at, f.row_id`

// addUncertain adds the rows that are uncertain without a claim that says so: another instance's send has got its sent_at since.
func (t *Table) addUncertain(ctx context.Context, tx pgx.Tx, sends []Send) ([]Send, error) {
	rows, err := tx.Query(ctx, expander(t).Replace(uncertainSQL))
	if err != nil {
		return nil, t.explain(err)
	}
	listed := map[string]bool{}
	for _, s := range sends {
		listed[s.EventID] = true
	}
	s := Send{Sends: t.Sends.Name, Table: t.Name, State: SendUncertain}
	_, err = pgx.ForEachRow(rows, []any{&s.EventID, &s.ID, &s.Kind, &s.LastError, &s.ClaimedAt}, func() error {
		if !listed[s.EventID] {
			sends = append(sends, s)
		}
		s.ClaimedAt = nil
		return nil
	})
	return sends, t.explain(err)
}
