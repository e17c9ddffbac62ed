package sqs

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"pgrelay/relay"
)

// Publish sends one SendMessageBatch. Only where SQS refuses the request whole,
// for the sake of an entry that it does not name, it sends the halves, down to the message
// that is to blame, all within the one deadline.
func (p *Publisher) Publish(ctx context.Context, batch []*relay.Message) ([]relay.Result, *relay.Fault) {
	results := make([]relay.Result, len(batch))
	q := p.queue.Load()
	if q == nil {
		fault := p.fault("not_open", "the destination is closed")
		fill(results, backFor(fault))
		return results, fault
	}
	if len(batch) == 0 {
		return results, nil
	}
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	return results, p.send(ctx, q, batch, results)
}

func (p *Publisher) send(ctx context.Context, q *queue, batch []*relay.Message, results []relay.Result) *relay.Fault {
	if ctx.Err() != nil {
		fill(results, notSent.result)
		return nil //nolint:nilerr // that a call ends is nobody's fault
	}
	var sent atomic.Bool
	out, err := p.client.SendMessageBatch(watch(ctx, &sent), p.request(q, batch))
	if err == nil {
		return p.settle(batch, out, results)
	}
	f := p.explain(ctx, sent.Load(), err)
	if !f.split || len(batch) == 1 {
		fill(results, f.result)
		return f.fault
	}
	half := len(batch) / 2
	if fault := p.send(ctx, q, batch[:half], results[:half]); fault != nil {
		fill(results[half:], backFor(fault))
		return fault
	}
	return p.send(ctx, q, batch[half:], results[half:])
}

// request gives every message its index as entry id.
func (p *Publisher) request(q *queue, batch []*relay.Message) *sqs.SendMessageBatchInput {
	entries := make([]types.SendMessageBatchRequestEntry, len(batch))
	for i, m := range batch {
		e := &entries[i]
		e.Id = aws.String(strconv.Itoa(i))
		e.MessageBody = &m.Body
		e.MessageAttributes = attributes(m.Attributes)
		if m.Group != "" {
			e.MessageGroupId = &m.Group
		}
		if p.fifo {
			e.MessageDeduplicationId = &m.DedupID
		}
		// Whole seconds, upwards: a message must not come before its time.
		e.DelaySeconds = int32((m.Delay + time.Second - 1) / time.Second)
	}
	return &sqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: entries}
}

func attributes(list []relay.Attribute) map[string]types.MessageAttributeValue {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]types.MessageAttributeValue, len(list))
	for i := range list {
		m[list[i].Name] = types.MessageAttributeValue{DataType: aws.String(stringType), StringValue: &list[i].Value}
	}
	return m
}
