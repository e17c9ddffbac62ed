package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"pgrelay/internal/sqstest"
	"pgrelay/internal/stage"
)

const (
	confirmed = "booking.confirmed"
	outbox    = "pgrelay.outbox_events"

	shown  = 5   // bookings that are printed one by one
	steady = 200 // bookings whose latency is measured
	pace   = 10 * time.Millisecond
	outage = 400 // bookings during the outage
)

// acts are the demo, in turn.
func acts(s *stage.Stage) []stage.Act {
	d := &demo{Stage: s}
	return []stage.Act{
		{Title: "Two commands: migrate up, run", Play: d.begins},
		{Title: "A committed row is a message", Play: d.commits},
		{Title: "A rolled-back transaction sends nothing", Play: d.rollsBack},
		{Title: "Rows of one key arrive in the order of their commits", Play: d.keepsOrder},
		{Title: "An outage of SQS loses nothing", Play: d.outlasts},
		{Title: "What cannot be sent is a dead letter, and can be mended", Play: d.buries},
		{Title: "What was sent can be sent again", Play: d.repeats},
		{Title: "The count", Play: d.counts},
	}
}

func (s *demo) begins(ctx context.Context) error {
	s.Text("The configuration, pgrelay.yaml:")
	s.Output(configuration)
	return s.Begin(ctx)
}

func (s *demo) commits(ctx context.Context) error {
	first := guest(0)
	s.Text("A booking and its event, in one transaction:")
	s.SQL(append(first.statements(), "COMMIT")...)
	s.Text("What the queue received, and the time from COMMIT to its receipt:")
	for i := range shown {
		b := guest(i)
		e, err := b.commit(ctx, s.Conn, &s.ledger)
		if err != nil {
			return err
		}
		m, err := s.next(ctx)
		if err != nil {
			return err
		}
		s.Output(fmt.Sprintf("%-7s %-18s %-24s %s", m.GroupID, m.Attributes["event_type"].Value, m.Body, took(m.ReceivedAt.Sub(e.committed))))
	}
	s.Text("%d more, one every %s …", steady, pace)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range steady {
		b := guest(i)
		b.timed = true
		if _, err := b.commit(ctx, s.Conn, &s.ledger); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	c := s.count()
	s.Text("Latency: median %s, 95 %% within %s.", took(c.quantile(0.5)), took(c.quantile(0.95)))
	return nil
}

func (s *demo) rollsBack(ctx context.Context) error {
	b := booking{room: "room-1", guest: "Nobody", kind: confirmed}
	s.SQL(append(b.statements(), "ROLLBACK")...)
	if _, err := b.begin(ctx, s.Conn); err != nil {
		return err
	}
	if _, err := s.Conn.Exec(ctx, "ROLLBACK"); err != nil {
		return fmt.Errorf("rolling back: %w", err)
	}
	b.guest = "Somebody"
	if _, err := b.commit(ctx, s.Conn, &s.ledger); err != nil {
		return err
	}
	m, err := s.next(ctx)
	if err != nil {
		return err
	}
	s.Text("The next booking is committed. The next message is: %s", m.Body)
	if strings.Contains(m.Body, "Nobody") {
		return errors.New("a row that was rolled back has arrived")
	}
	return nil
}

func (s *demo) keepsOrder(ctx context.Context) error {
	const writers, each, rooms = 4, 30, 3
	s.Text("%d connections book %d times each in %d rooms, side by side. Each locks the room's row before it "+
		"inserts, so that the transactions of one room take turns.", writers, each, rooms)
	before := s.ledger.expected()
	g, gctx := errgroup.WithContext(ctx)
	for w := range writers {
		g.Go(func() error { return s.write(gctx, fmt.Sprintf("writer-%d", w), each, rooms) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	perRoom := map[string]int{}
	for _, m := range s.Queues.MessagesFrom(queueName, before) {
		perRoom[m.GroupID]++
	}
	for n := range rooms {
		room := fmt.Sprintf("room-%d", n+1)
		s.Output(fmt.Sprintf("%s: %d messages", room, perRoom[room]))
	}
	s.Text("Out of order: %d.", s.count().disordered)
	return nil
}

// write books on a connection of its own.
func (s *demo) write(ctx context.Context, name string, n, rooms int) error {
	conn, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // its transactions have ended
	return bookMany(ctx, conn, &s.ledger, name, n, rooms)
}

func bookMany(ctx context.Context, conn *pgx.Conn, l *ledger, name string, n, rooms int) error {
	for i := range n {
		b := booking{room: fmt.Sprintf("room-%d", i%rooms+1), guest: fmt.Sprintf("%s/%d", name, i+1), kind: confirmed}
		if _, err := b.commit(ctx, conn, l); err != nil {
			return err
		}
	}
	return nil
}

func (s *demo) outlasts(ctx context.Context) error {
	s.Text("SQS answers 503 from now on. %d bookings are committed meanwhile.", outage)
	s.Queues.Down()
	before := s.ledger.expected()
	if err := bookMany(ctx, s.Conn, &s.ledger, "patient", outage, 20); err != nil {
		return err
	}
	if err := s.Until(ctx, "SELECT bool_and(pg_current_wal_lsn() - confirmed_flush_lsn < 65536) FROM pg_replication_slots"); err != nil {
		return fmt.Errorf("waiting for the slot to follow: %w", err)
	}
	if err := s.Run("status"); err != nil {
		return err
	}
	arrived := s.Queues.Count(queueName) - before
	s.Text("Arrived: %d. The rows wait in their table and the slot holds nothing back: it only wakes the relay. "+
		"SQS answers again …", arrived)
	began := time.Now()
	s.Queues.Up()
	if err := s.quiet(ctx); err != nil {
		return err
	}
	c := s.count()
	s.Text("All %d arrived within %s. Lost: %d, out of order: %d, duplicates: %d.",
		s.Queues.Count(queueName)-before, took(time.Since(began)), c.lost, c.disordered, c.duplicates)
	return nil
}

func (s *demo) buries(ctx context.Context) error {
	s.Text("Somebody misspells the event's type, and no route takes it. The next row goes out all the same.")
	dead := booking{room: "room-1", guest: "Mona", kind: "boking.confirmed"}
	s.SQL(dead.statements()[3])
	buried, err := dead.commit(ctx, s.Conn, &ledger{}) // it counts when it is mended
	if err != nil {
		return err
	}
	neighbour := booking{room: "room-1", guest: "Ned", kind: confirmed}
	if _, err := neighbour.commit(ctx, s.Conn, &s.ledger); err != nil {
		return err
	}
	m, err := s.next(ctx)
	if err != nil {
		return err
	}
	s.Text("The next message is: %s", m.Body)
	if err := s.Until(ctx, "SELECT count(*) = 1 FROM pgrelay.dead_letters"); err != nil {
		return err
	}
	if err := s.Run("dead", "list"); err != nil {
		return err
	}
	if err := s.Exec(ctx, fmt.Sprintf("UPDATE %s SET event_type = '%s'\nWHERE id = %d", outbox, confirmed, buried.row)); err != nil {
		return err
	}
	buried.key = "mended" // a dead row gives up its place in the order of its key
	s.ledger.add(buried)
	if err := s.Run("dead", "retry", "--table", outbox, "--id", fmt.Sprint(buried.row)); err != nil {
		return err
	}
	if m, err = s.next(ctx); err != nil {
		return err
	}
	s.Text("Arrived: %s", m.Body)
	return nil
}

func (s *demo) repeats(ctx context.Context) error {
	s.ledger.extra++
	if err := s.Run("republish", "--table", outbox, "--id", "1"); err != nil {
		return err
	}
	m, err := s.next(ctx)
	if err != nil {
		return err
	}
	s.Text("Arrived: %s", m.Body)
	s.Text("SQS drops what repeats within five minutes by its deduplication id. So this one has a new one:")
	s.Output("first time  " + s.Queues.Messages(queueName)[0].DedupID)
	s.Output("now         " + m.DedupID)
	return nil
}

func (s *demo) counts(_ context.Context) error {
	if err := s.End(); err != nil {
		return err
	}
	c := s.count()
	row := func(name string, value any) { s.Output(fmt.Sprintf("%-34s %8v", name, value)) }
	row("sent (rows committed)", c.sent)
	row("received (of them, by the queue)", c.received)
	row("lost", c.lost)
	row("duplicates", c.duplicates)
	row("republished, as we asked", c.republished)
	row("arrived though rolled back", c.strangers)
	row("out of order", c.disordered)
	row("median latency, COMMIT to receipt", took(c.quantile(0.5)))
	if !c.adds() {
		return errors.New("the count does not add up")
	}
	return nil
}

// next waits for the message after all that were expected so far but the last.
func (s *demo) next(ctx context.Context) (sqstest.Message, error) {
	n := s.ledger.expected()
	messages, err := s.Queues.Await(ctx, queueName, n-1, n)
	if err != nil {
		return sqstest.Message{}, err
	}
	return messages[0], nil
}

// quiet waits until everything that was committed has arrived.
func (s *demo) quiet(ctx context.Context) error {
	return s.Queues.Wait(ctx, queueName, s.ledger.expected())
}

func (s *demo) count() summary {
	return s.ledger.settle(s.Queues.Messages(queueName), s.Queues.Deduplicated(queueName))
}

func guest(i int) booking {
	names := []string{"Ada", "Béla", "Chen", "Dilnoza", "Efua"}
	return booking{room: fmt.Sprintf("room-%d", i%20+1), guest: names[i%len(names)], kind: confirmed}
}

func took(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
