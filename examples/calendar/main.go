package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"syscall"

	"pgrelay/internal/stage"
)

const (
	calendarQueue = "calendar-backfill"
	mailQueue     = "email-backfill"
)

//go:embed schema.sql
var schema string

//go:embed pgrelay.yaml
var configuration string

func main() { stage.Main(play()) }

// calendar is a stage with what the acts leave to the next.
type calendar struct {
	*stage.Stage
	link, job string
	arrived   map[string]int // messages shown, by queue
}

func play() stage.Play {
	return stage.Play{
		Name: "calendar", Configuration: configuration, Schema: schema, Queues: []string{calendarQueue, mailQueue}, Acts: acts,
	}
}

func acts(s *stage.Stage) []stage.Act {
	c := &calendar{Stage: s, arrived: map[string]int{}}
	return []stage.Act{
		{Title: "Three outboxes, as they are", Play: c.begins},
		{Title: "The message is made of the job", Play: c.maps},
		{Title: "A row waits until its job is ready", Play: c.waits},
		{Title: "A row that can't be mapped holds up nobody", Play: c.stamps},
		{Title: "The scheduler sends a row again, until it is switched off", Play: c.schedules},
		{Title: "A job is sent again by its id", Play: c.republishes},
		{Title: "The end", Play: c.ends},
	}
}

func (c *calendar) begins(ctx context.Context) error {
	c.Text("The tables are those of examples/calendar/schema.sql, the configuration is pgrelay.yaml beside it.")
	if err := c.Begin(ctx); err != nil {
		return err
	}
	var err error
	c.link, err = link(ctx, c.Conn, "ada@example.com")
	return err
}

func (c *calendar) maps(ctx context.Context) (err error) {
	c.Text("A calendar job of the kind google_calendar, and its row in calendar_sync_outbox:")
	if c.job, err = backfillCalendar(ctx, c.Conn, c.link, "google_calendar"); err != nil {
		return err
	}
	return c.arrives(ctx, calendarQueue)
}

func (c *calendar) waits(ctx context.Context) error {
	job, err := backfillMail(ctx, c.Conn, c.link, nil)
	if err != nil {
		return err
	}
	c.Text("A mail job is there, and its row in email_backfill_init_outbox. It isn't initialized:")
	row, err := c.rowOf(ctx, "email_backfill_init_outbox", job)
	if err != nil {
		return err
	}
	if err := c.Run("explain", "--table", "email_backfill_init_outbox", "--id", row); err != nil {
		return err
	}
	c.Text("Now it is:")
	if err := initialize(ctx, c.Conn, job); err != nil {
		return err
	}
	if err := c.arrives(ctx, mailQueue); err != nil {
		return err
	}
	c.Text("And when it is complete:")
	if err := complete(ctx, c.Conn, job); err != nil {
		return err
	}
	return c.arrives(ctx, mailQueue)
}

func (c *calendar) stamps(ctx context.Context) error {
	c.Text("A job of a kind that no route takes. It is stamped, and pgrelay says so:")
	if _, err := backfillCalendar(ctx, c.Conn, c.link, "outlook_calendar"); err != nil {
		return err
	}
	const said = "row is malformed: stamped without being sent"
	if err := c.Says(ctx, said, 0); err != nil {
		return err
	}
	c.Text("A job ends whose link was deleted meanwhile. It has completed_at set as well:")
	gone, err := link(ctx, c.Conn, "gone@example.com")
	if err != nil {
		return err
	}
	job, err := backfillMail(ctx, c.Conn, gone, nil)
	if err != nil {
		return err
	}
	if err := c.Exec(ctx, "DELETE FROM links WHERE address = 'gone@example.com'"); err != nil {
		return err
	}
	if err := complete(ctx, c.Conn, job); err != nil {
		return err
	}
	if err := c.Says(ctx, said, 1); err != nil {
		return err
	}
	return c.Until(ctx, "SELECT count(*) = 1 FROM email_backfill_completion_outbox WHERE completed_at IS NOT NULL")
}

func (c *calendar) schedules(ctx context.Context) error {
	if err := c.Exec(ctx, fmt.Sprintf("INSERT INTO calendar_syncs (backfill_job_id, every)\nVALUES ('%s', '1 s')", c.job)); err != nil {
		return err
	}
	for range 2 {
		if err := c.arrives(ctx, calendarQueue); err != nil {
			return err
		}
	}
	c.Text("scheduler.enabled is set to false in pgrelay.yaml.")
	if err := c.Configure(strings.Replace(configuration, "enabled: true", "enabled: false", 1)); err != nil {
		return err
	}
	c.Command("kill -HUP %1")
	c.Relay().Signal(syscall.SIGHUP)
	if err := c.Says(ctx, "scheduler switched off; what is in the outboxes still goes out", 0); err != nil {
		return err
	}
	return c.Until(ctx, "SELECT count(*) = 0 FROM calendar_sync_outbox WHERE published_at IS NULL")
}

func (c *calendar) republishes(ctx context.Context) error {
	c.arrived[calendarQueue] = c.Queues.Count(calendarQueue) // a last one of the scheduler may have come
	if err := c.Run("republish", "--table", "calendar_sync_outbox", "--where", "backfill_job_id="+c.job); err != nil {
		return err
	}
	return c.arrives(ctx, calendarQueue)
}

func (c *calendar) ends(_ context.Context) error {
	if err := c.Run("status"); err != nil {
		return err
	}
	return c.End()
}

// arrives waits for the next message of a queue and shows it.
func (c *calendar) arrives(ctx context.Context, queue string) error {
	n := c.arrived[queue]
	messages, err := c.Queues.Await(ctx, queue, n, n+1)
	if err != nil {
		return err
	}
	c.arrived[queue]++
	c.Output(queue + ": " + messages[0].Body)
	return nil
}

// rowOf is the key of a job's row in an outbox.
func (c *calendar) rowOf(ctx context.Context, outbox, job string) (id string, err error) {
	if err := c.Conn.QueryRow(ctx, "SELECT id FROM "+outbox+" WHERE backfill_job_id = $1", job).Scan(&id); err != nil {
		return "", fmt.Errorf("finding a job's row: %w", err)
	}
	return id, nil
}
