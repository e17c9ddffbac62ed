package sqsfacts

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// needs are messages without what every message of a queue has to have.
func needs() []Fact {
	x := aws.String("x")
	var facts []Fact
	for _, f := range []struct {
		name       string
		mark       Mark
		attributes map[string]string
		in         sqs.SendMessageInput
		url        func(ofQueue string) string
		refused    Refusal
	}{
		{"empty body", Recorded, nil, sqs.SendMessageInput{MessageBody: aws.String("")}, same, missing},
		{"FIFO without group", Recorded, fifoQueue, sqs.SendMessageInput{MessageBody: x, MessageDeduplicationId: x}, same, missing},
		{"FIFO without deduplication id", Recorded, fifoQueue, sqs.SendMessageInput{MessageBody: x, MessageGroupId: x}, same, badParameter},
		{"no such queue", Recorded, nil, sqs.SendMessageInput{MessageBody: x}, func(url string) string { return url + "x" }, noQueue},
		{"empty queue URL", Unverified, nil, sqs.SendMessageInput{MessageBody: x}, func(string) string { return "" }, missing},
	} {
		facts = append(facts, Fact{"need/" + f.name, f.mark, f.attributes, func(ctx context.Context, q *Queue) error {
			in := f.in
			in.QueueUrl = aws.String(f.url(q.URL))
			_, err := q.Client.SendMessage(ctx, &in)
			if err := f.refused.Check(err); err != nil {
				return err
			}
			return q.holds(ctx)
		}})
	}
	return facts
}

func same(url string) string { return url }
