package sqs

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"pgrelay/relay"
)

// Open finds the queue and asks it for its type and its limit. A role that may
// send but not read attributes is good enough: the limit is then taken for SQS's own.
func (p *Publisher) Open(ctx context.Context) error {
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	url, fault := p.findURL(ctx)
	if fault != nil {
		return fault
	}
	limit, fault := p.readLimit(ctx, url)
	if fault != nil {
		return fault
	}
	p.queue.Store(&queue{url: url, maxBytes: limit})
	return nil
}

func (p *Publisher) findURL(ctx context.Context) (string, *relay.Fault) {
	if p.target.url != "" {
		return p.target.url, nil
	}
	in := &sqs.GetQueueUrlInput{QueueName: aws.String(p.target.name)}
	if p.target.account != "" {
		in.QueueOwnerAWSAccountId = aws.String(p.target.account)
	}
	var sent atomic.Bool
	out, err := p.client.GetQueueUrl(watch(ctx, &sent), in)
	if err != nil {
		return "", p.openFault(ctx, sent.Load(), err)
	}
	return aws.ToString(out.QueueUrl), nil
}

func (p *Publisher) readLimit(ctx context.Context, url string) (int, *relay.Fault) {
	var sent atomic.Bool
	out, err := p.client.GetQueueAttributes(watch(ctx, &sent), &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(url),
		// All, because a standard queue may refuse to be asked for FifoQueue by name.
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		fault := p.openFault(ctx, sent.Load(), err)
		if fault.Reason != denied.reason {
			return 0, fault
		}
		p.log.Warn().Str("queue", p.target.name).Int("max_message_bytes", maxBytes).
			Msg("sqs:GetQueueAttributes is not allowed; taking SQS's own message limit for the queue's")
		return maxBytes, nil
	}
	if fifo := out.Attributes["FifoQueue"] == "true"; fifo != p.fifo {
		return 0, p.fault("wrong_type", "a queue is FIFO if and only if its name ends in .fifo; this one's type and name differ")
	}
	if limit, err := strconv.Atoi(out.Attributes["MaximumMessageSize"]); err == nil && limit > 0 && limit < maxBytes {
		return limit, nil
	}
	return maxBytes, nil
}
