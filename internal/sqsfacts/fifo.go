package sqsfacts

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// post sends one message to a FIFO queue; an empty dedup is none.
func (q *Queue) post(ctx context.Context, body, group, dedup string) (*sqs.SendMessageOutput, error) {
	in := &sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: &body, MessageGroupId: &group}
	if dedup != "" {
		in.MessageDeduplicationId = &dedup
	}
	return q.Client.SendMessage(ctx, in)
}

// posted is a body with its group and deduplication id.
type posted [3]string

// keeps is a fact: of what is posted, a queue has these in the end.
func keeps(want []string, messages ...posted) func(ctx context.Context, q *Queue) error {
	return func(ctx context.Context, q *Queue) error {
		for _, m := range messages {
			if _, err := q.post(ctx, m[0], m[1], m[2]); err != nil {
				return err
			}
		}
		return q.holds(ctx, want...)
	}
}

// fifo are the facts of order and of deduplication.
func fifo() []Fact {
	byContent := fifoWith("ContentBasedDeduplication", "true")
	return []Fact{
		{"fifo/order of a group", Documented, fifoQueue, keeps([]string{"one", "two", "three"},
			posted{"one", "g", "3"}, posted{"two", "g", "2"}, posted{"three", "g", "1"})},
		{"fifo/order in a batch", Documented, fifoQueue, func(ctx context.Context, q *Queue) error {
			out, err := q.sendBatch(ctx, fifoEntry("3", "one"), fifoEntry("2", "two"), fifoEntry("1", "three"))
			if err != nil {
				return err
			}
			if err := allTaken(out, 3); err != nil {
				return err
			}
			return q.holds(ctx, "one", "two", "three")
		}},
		{"fifo/a repeat is swallowed", Recorded, fifoQueue, keeps([]string{"one"}, posted{"one", "g", "d"}, posted{"another body", "g", "d"})},
		{"fifo/a repeat has the ids of the first", Unverified, fifoQueue, repeatHasIDsOfFirst},
		{"fifo/a repeat within a batch is swallowed", Unverified, fifoQueue, func(ctx context.Context, q *Queue) error {
			repeat := fifoEntry("2", "again")
			repeat.MessageDeduplicationId = aws.String("1")
			out, err := q.sendBatch(ctx, fifoEntry("1", "one"), repeat)
			if err != nil {
				return err
			}
			if err := allTaken(out, 2); err != nil {
				return err
			}
			return q.holds(ctx, "one")
		}},
		{"fifo/the window outlives deletion", Recorded, fifoQueue, func(ctx context.Context, q *Queue) error {
			if err := keeps([]string{"one"}, posted{"one", "g", "d"})(ctx, q); err != nil {
				return err
			}
			return keeps(nil, posted{"one", "g", "d"})(ctx, q)
		}},
		{"fifo/ids across groups", Recorded, fifoWith("DeduplicationScope", "queue"), keeps([]string{"one", "four"},
			posted{"one", "g", "d"}, posted{"two", "h", "d"}, posted{"three", "g", "d"}, posted{"four", "g", "e"})},
		{"fifo/ids within a group", Recorded, fifoWith("DeduplicationScope", "messageGroup"), keeps([]string{"one", "two", "three"},
			posted{"one", "g", "d"}, posted{"again", "g", "d"}, posted{"two", "g", "e"}, posted{"three", "h", "d"})},
		{"fifo/an equal body is a repeat by content", Documented, byContent, keeps([]string{"one", "two"},
			posted{"one", "g", ""}, posted{"one", "g", ""}, posted{"two", "g", ""})},
		{"fifo/attributes are no content", Documented, byContent, func(ctx context.Context, q *Queue) error {
			in := &sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: aws.String("one"), MessageGroupId: aws.String("g"), MessageAttributes: attributesOf(1)}
			if _, err := q.Client.SendMessage(ctx, in); err != nil {
				return err
			}
			return keeps([]string{"one"}, posted{"one", "g", ""})(ctx, q)
		}},
		{"fifo/an id goes before the content", Documented, byContent, keeps([]string{"one", "one"},
			posted{"one", "g", ""}, posted{"one", "g", "explicit"})},
	}
}

func repeatHasIDsOfFirst(ctx context.Context, q *Queue) error {
	first, err := q.post(ctx, "one", "g", "d")
	if err != nil {
		return err
	}
	repeat, err := q.post(ctx, "one", "g", "d")
	if err != nil {
		return err
	}
	if *repeat.MessageId != *first.MessageId || aws.ToString(repeat.SequenceNumber) != aws.ToString(first.SequenceNumber) {
		return fmt.Errorf("the repeat has MessageId and SequenceNumber of its own")
	}
	return nil
}
