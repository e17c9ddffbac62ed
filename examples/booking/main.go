package main

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"time"

	"pgrelay/internal/smtptest"
	"pgrelay/internal/stage"
)

const queue = "bookings.fifo"

//go:embed schema.sql
var schema string

//go:embed pgrelay.yaml
var configuration string

func main() { stage.Main(play()) }

// service is a stage with what the acts leave to the next.
type service struct {
	*stage.Stage
	b        booking
	messages int // shown
	mails    int // shown
}

func play() stage.Play {
	return stage.Play{Name: "booking", Configuration: configuration, Schema: schema, Queues: []string{queue}, Acts: acts}
}

func acts(s *stage.Stage) []stage.Act {
	c := &service{Stage: s, b: booking{
		Title: "Room 7", Guests: []string{"ada@example.com", "Béla <bela@example.com>", "chen@example.com"},
		Start: time.Date(2027, 5, 3, 9, 0, 0, 0, time.UTC), End: time.Date(2027, 5, 3, 10, 0, 0, 0, time.UTC),
	}}
	return []stage.Act{
		{Title: "An outbox with a status of its own", Play: c.begins},
		{Title: "One booking: a row for the queue, a row for the mail to its guests", Play: c.books},
		{Title: "A change, and the end", Play: c.changes},
		{Title: "A guest whose mail is refused", Play: c.refuses},
		{Title: "A mail of which nobody knows whether it arrived", Play: c.loses},
		{Title: "The end", Play: c.ends},
	}
}

func (c *service) begins(ctx context.Context) error {
	c.Text("The tables are those of examples/booking/schema.sql, the configuration is pgrelay.yaml beside it.")
	return c.Begin(ctx)
}

func (c *service) books(ctx context.Context) error {
	if err := book(ctx, c.Conn, &c.b); err != nil {
		return err
	}
	return c.arrive(ctx, 3)
}

func (c *service) changes(ctx context.Context) error {
	if err := reschedule(ctx, c.Conn, &c.b, 24*time.Hour); err != nil {
		return err
	}
	if err := c.arrive(ctx, 3); err != nil {
		return err
	}
	if err := cancel(ctx, c.Conn, &c.b); err != nil {
		return err
	}
	return c.arrive(ctx, 3)
}

func (c *service) refuses(ctx context.Context) error {
	c.Text("The server knows no gone@example.com. The others have their mail, the event is FAILED and says why:")
	c.Mail.SetFault(smtptest.For("gone@example.com", "RCPT", smtptest.Fault{Reply: "550 5.1.1 no such user"}))
	b := c.b
	b.Guests = []string{"ada@example.com", "gone@example.com", "chen@example.com"}
	if err := book(ctx, c.Conn, &b); err != nil {
		return err
	}
	if err := c.arrive(ctx, 2); err != nil {
		return err
	}
	if err := c.Until(ctx, "SELECT count(*) = 1 FROM outbox_events WHERE status = 'FAILED'"); err != nil {
		return err
	}
	const why = "SELECT last_error FROM outbox_events WHERE status = 'FAILED'"
	var lastError string
	if err := c.Conn.QueryRow(ctx, why).Scan(&lastError); err != nil {
		return fmt.Errorf("reading why: %w", err)
	}
	c.SQL(why)
	c.Output(lastError)
	return nil
}

func (c *service) loses(ctx context.Context) error {
	c.Text("The server takes the mail to Ada, and the connection breaks before it says so. It is not sent again, and not " +
		"forgotten: a person decides.")
	c.Mail.SetFault(smtptest.For("ada@example.com", "DOT", smtptest.Fault{Accept: true, Cut: true}))
	b := c.b
	b.Guests = []string{"ada@example.com", "chen@example.com"}
	if err := book(ctx, c.Conn, &b); err != nil {
		return err
	}
	if err := c.arrive(ctx, 2); err != nil {
		return err
	}
	if err := c.Until(ctx, "SELECT count(*) = 2 FROM outbox_events WHERE status = 'FAILED'"); err != nil {
		return err
	}
	if err := c.Run("sends", "list", "--uncertain"); err != nil {
		return err
	}
	var event string
	err := c.Conn.QueryRow(ctx, "SELECT event_id FROM booking_notification_sends WHERE sent_at IS NULL").Scan(&event)
	if err != nil {
		return fmt.Errorf("reading the claim: %w", err)
	}
	c.Text("Ada says that she has it:")
	if err := c.Run("sends", "resolve", "--event", event, "--sent"); err != nil {
		return err
	}
	return c.Until(ctx, "SELECT count(*) = 1 FROM outbox_events WHERE status = 'FAILED'")
}

func (c *service) ends(_ context.Context) error {
	if err := c.Run("status"); err != nil {
		return err
	}
	return c.End()
}

// arrive waits for the next message of the queue and so many mails, and shows them.
func (c *service) arrive(ctx context.Context, mails int) error {
	messages, err := c.Queues.Await(ctx, queue, c.messages, c.messages+1)
	if err != nil {
		return err
	}
	c.messages++
	c.Output("queue  " + messages[0].Attributes["event_type"].Value + " " + messages[0].Body)
	err = c.When(ctx, func() (bool, error) { return len(c.Mail.Mails()) >= c.mails+mails, nil })
	if err != nil {
		return err
	}
	for _, m := range c.Mail.Mails()[c.mails:][:mails] {
		c.Output(fmt.Sprintf("mail   to %-16s %s", m.To, subject.Find(m.Data)))
	}
	c.mails += mails
	return nil
}

var subject = regexp.MustCompile(`(?m)^Subject: [^\r\n]*`)
