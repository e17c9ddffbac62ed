package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
)

const (
	// visibility is for how long a message that was received is hidden from others. A batch of ten has to be done in it.
	visibility = 60 * time.Second
	// effectTimeout is that of one of them.
	effectTimeout = 5 * time.Second
)

// event is a message of pgrelay.
type event struct{ id, kind, body string }

// consumer gives each event of a queue its effect once.
type consumer struct {
	sqs   *sqs.Client
	queue string // its URL
	db    interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	}
	// effect writes through the transaction and nowhere else. What it does outside can't be taken back, and happens again.
	effect func(ctx context.Context, tx pgx.Tx, e event) error
	// timeout is the effect's.
	timeout time.Duration
}

// run consumes until ctx ends.
func (c *consumer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.batch(ctx); err != nil && ctx.Err() == nil {
			log.Printf("consuming: %v", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// batch takes what there is, up to ten messages, in their order. One that fails is left, and with it those behind it in its group,
// which is what keeps the order of a FIFO queue. They come back when their visibility ends.
func (c *consumer) batch(ctx context.Context) error {
	out, err := c.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &c.queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, VisibilityTimeout: int32(visibility.Seconds()),
		MessageAttributeNames:       []string{"event_id", "event_type"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameMessageGroupId},
	})
	if err != nil {
		return fmt.Errorf("receiving: %w", err)
	}
	var failed []error
	left := map[string]bool{} // groups
	for _, m := range out.Messages {
		group, grouped := m.Attributes["MessageGroupId"]
		if left[group] {
			continue
		}
		if err := c.message(ctx, m); err != nil {
			failed = append(failed, err)
			left[group] = grouped
		}
	}
	return errors.Join(failed...)
}

// message gives one message its effect, and deletes it when that is committed.
func (c *consumer) message(ctx context.Context, m types.Message) error {
	e := event{id: attribute(m, "event_id"), kind: attribute(m, "event_type"), body: *m.Body}
	if e.id == "" {
		return errors.New("a message without event_id: the queue's redrive policy has to take it away")
	}
	if err := c.once(ctx, e); err != nil {
		return fmt.Errorf("event %s: %w", e.id, err)
	}
	_, err := c.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &c.queue, ReceiptHandle: m.ReceiptHandle})
	if err != nil {
		return fmt.Errorf("deleting the message of event %s: %w", e.id, err) // it comes again, and has no effect
	}
	return nil
}

// once remembers the event and gives it its effect in one transaction. An event that is remembered has had it.
func (c *consumer) once(ctx context.Context, e event) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return pgx.BeginFunc(ctx, c.db, func(tx pgx.Tx) error {
		// While another consumer is at the same event this waits for its end: if that commits there is nothing to do, else it is on us.
		tag, err := tx.Exec(ctx, `INSERT INTO processed (event_id) VALUES ($1) ON CONFLICT DO NOTHING`, e.id)
		if err != nil {
			return fmt.Errorf("remembering it: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
		return c.effect(ctx, tx, e)
	})
}

func attribute(m types.Message, name string) string {
	if v := m.MessageAttributes[name].StringValue; v != nil {
		return *v
	}
	return ""
}
