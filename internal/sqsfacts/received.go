package sqsfacts

import (
	"context"
	"fmt"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// received are facts of what a reader gets of a message.
func received() []Fact {
	all := sqs.SendMessageInput{
		MessageBody: aws.String(`{"big":12345678901234567890,"t":"<>& \u0007 grüße"}`),
		MessageAttributes: attributes{
			"event_id": text("e-1"), "n": typed("Number.int", "-1.5e3"), "raw": binary("\x00\x01\xff"),
		},
	}
	tenant := sqs.SendMessageInput{MessageGroupId: aws.String("tenant-1")}
	return []Fact{
		{"received/body and attributes as sent", Documented, nil, func(ctx context.Context, q *Queue) error {
			m, _, err := q.roundTrip(ctx, all)
			if err != nil {
				return err
			}
			if *m.Body != *all.MessageBody || !reflect.DeepEqual(m.MessageAttributes, all.MessageAttributes) {
				return fmt.Errorf("received as %s with attributes %v", *m.Body, m.MessageAttributes)
			}
			return nil
		}},
		{"received/id and checksum of attributes as answered", Documented, nil, func(ctx context.Context, q *Queue) error {
			m, sent, err := q.roundTrip(ctx, all)
			if err != nil {
				return err
			}
			if *m.MessageId != *sent.MessageId || aws.ToString(m.MD5OfMessageAttributes) != aws.ToString(sent.MD5OfMessageAttributes) {
				return fmt.Errorf("received with another MessageId or MD5OfMessageAttributes than the sender was told")
			}
			return nil
		}},
		{"received/group on a standard queue", Recorded, nil, groupIs("tenant-1", tenant)},
		{"received/group on a FIFO queue", Documented, fifoQueue, groupIs("tenant-1", tenant)},
	}
}

func groupIs(want string, in sqs.SendMessageInput) func(ctx context.Context, q *Queue) error {
	return func(ctx context.Context, q *Queue) error {
		m, _, err := q.roundTrip(ctx, in)
		if err != nil {
			return err
		}
		if got := m.Attributes["MessageGroupId"]; got != want {
			return fmt.Errorf("received with group %q", got)
		}
		return nil
	}
}

// roundTrip sends a message and receives it.
func (q *Queue) roundTrip(ctx context.Context, in sqs.SendMessageInput) (types.Message, *sqs.SendMessageOutput, error) {
	sent, err := q.Client.SendMessage(ctx, q.complete(in))
	if err != nil {
		return types.Message{}, nil, err
	}
	messages, err := q.Drain(ctx)
	if err != nil {
		return types.Message{}, nil, err
	}
	if len(messages) != 1 {
		return types.Message{}, nil, fmt.Errorf("%d messages received of one", len(messages))
	}
	return messages[0], sent, nil
}
