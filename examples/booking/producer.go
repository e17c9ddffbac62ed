package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// booking is what is booked, for its guests.
type booking struct {
	ID         int64
	Title      string
	Guests     []string
	Start, End time.Time
	Sequence   int
}

// mail is the document that pgrelay makes a mail of: one to each in To.
type mail struct {
	To       []string   `json:"to"`
	Subject  string     `json:"subject"`
	Text     string     `json:"text"`
	Calendar invitation `json:"calendar"`
}

// invitation is the entry in a guest's calendar. UID ties its changes and its end to it, by Sequence they are in order.
type invitation struct {
	Method   string    `json:"method"` // request, reschedule or cancel
	UID      string    `json:"uid"`
	Sequence int       `json:"sequence"`
	Start    time.Time `json:"start"`
	End      time.Time `json:"end"`
}

// database is a connection, a pool, or a transaction.
type database interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// book makes a booking and invites its guests.
func book(ctx context.Context, db database, b *booking) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `INSERT INTO bookings (title, guests, starts_at, ends_at) VALUES ($1, $2, $3, $4) RETURNING id, sequence`,
			b.Title, b.Guests, b.Start, b.End).Scan(&b.ID, &b.Sequence)
		if err != nil {
			return fmt.Errorf("booking: %w", err)
		}
		return announce(ctx, tx, b, "BOOKING_CONFIRMED", "request")
	})
}

// reschedule moves a booking. The UPDATE comes first: its lock makes those who change one booking take turns, so that the
// order of its events is that of their commits.
func reschedule(ctx context.Context, db database, b *booking, by time.Duration) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `UPDATE bookings SET starts_at = starts_at + $2, ends_at = ends_at + $2, sequence = sequence + 1
			WHERE id = $1 RETURNING starts_at, ends_at, sequence`, b.ID, by).Scan(&b.Start, &b.End, &b.Sequence)
		if err != nil {
			return fmt.Errorf("rescheduling: %w", err)
		}
		return announce(ctx, tx, b, "BOOKING_RESCHEDULED", "reschedule")
	})
}

// cancel takes a booking out of its guests' calendars.
func cancel(ctx context.Context, db database, b *booking) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `UPDATE bookings SET sequence = sequence + 1 WHERE id = $1 RETURNING sequence`, b.ID).Scan(&b.Sequence)
		if err != nil {
			return fmt.Errorf("cancelling: %w", err)
		}
		return announce(ctx, tx, b, "BOOKING_CANCELLED", "cancel")
	})
}

// announce inserts the event twice, for the queue and for the guests: what goes to two destinations is two rows, each with a fate of its
// own, and both are there or neither.
func announce(ctx context.Context, tx pgx.Tx, b *booking, kind, method string) error {
	subject := map[string]string{"request": "Invitation: ", "reschedule": "Rescheduled: ", "cancel": "Cancelled: "}[method] + b.Title
	event := map[string]any{"booking": b.ID, "sequence": b.Sequence, "guests": len(b.Guests)}
	letter := mail{
		To: b.Guests, Subject: subject, Text: subject + ", " + b.Start.UTC().Format("2 January 2006 15:04 MST"),
		Calendar: invitation{Method: method, UID: fmt.Sprintf("booking-%d@example.com", b.ID), Sequence: b.Sequence, Start: b.Start, End: b.End},
	}
	_, err := tx.Exec(ctx, `INSERT INTO outbox_events (booking_id, event_type, payload) VALUES ($1, $2, $3), ($1, 'INVITATION', $4)`,
		b.ID, kind, event, letter)
	if err != nil {
		return fmt.Errorf("announcing: %w", err)
	}
	return nil
}
