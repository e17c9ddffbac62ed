package sqsfacts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Queue is the queue of one fact.
type Queue struct {
	Client *sqs.Client
	URL    string
	Poll   int32 // seconds until a queue that gives nothing is believed to be empty
}

func (q *Queue) fifo() bool { return strings.HasSuffix(q.URL, ".fifo") }

// complete fills in what every message of the queue needs.
func (q *Queue) complete(in sqs.SendMessageInput) *sqs.SendMessageInput {
	in.QueueUrl = &q.URL
	if in.MessageBody == nil {
		in.MessageBody = aws.String("x")
	}
	if q.fifo() && in.MessageGroupId == nil {
		in.MessageGroupId = aws.String("g")
	}
	if q.fifo() && in.MessageDeduplicationId == nil {
		in.MessageDeduplicationId = aws.String("d")
	}
	return &in
}

func (q *Queue) sendBatch(ctx context.Context, batch ...types.SendMessageBatchRequestEntry) (*sqs.SendMessageBatchOutput, error) {
	return q.Client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &q.URL, Entries: batch}, withoutChecksum)
}

// withoutChecksum lets through what the SDK itself changes on its way.
func withoutChecksum(o *sqs.Options) { o.DisableMessageChecksumValidation = true }

// receive gives up to ten messages with all that is known of them.
func (q *Queue) receive(ctx context.Context) ([]types.Message, error) {
	out, err := q.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &q.URL, MaxNumberOfMessages: 10, WaitTimeSeconds: q.Poll,
		MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		return nil, fmt.Errorf("receiving: %w", err)
	}
	return out.Messages, nil
}

// Drain receives and deletes until nothing is left, and returns what there was.
func (q *Queue) Drain(ctx context.Context) ([]types.Message, error) {
	var all []types.Message
	for {
		messages, err := q.receive(ctx)
		if err != nil || len(messages) == 0 {
			return all, err
		}
		all = append(all, messages...)
		for _, m := range messages {
			_, err := q.Client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &q.URL, ReceiptHandle: m.ReceiptHandle})
			if err != nil {
				return nil, fmt.Errorf("deleting: %w", err)
			}
		}
	}
}

// holds empties the queue and says in what its bodies differ. A standard queue has no order.
func (q *Queue) holds(ctx context.Context, want ...string) error {
	messages, err := q.Drain(ctx)
	if err != nil {
		return err
	}
	var got []string
	for _, m := range messages {
		got = append(got, aws.ToString(m.Body))
	}
	if !q.fifo() {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the queue had %s instead of %s", quoted(got), quoted(want))
	}
	return nil
}

// quoted shows bodies, but not megabytes of them.
func quoted(bodies []string) string {
	all := make([]string, len(bodies))
	for i, b := range bodies {
		all[i] = fmt.Sprintf("%.40q", b)
	}
	return "[" + strings.Join(all, " ") + "]"
}
