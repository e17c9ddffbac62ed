package sqsfacts

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// message is one message that a queue takes or refuses.
type message struct {
	name    string
	mark    Mark
	in      sqs.SendMessageInput // as Queue.complete completes it
	refused *Refusal             // nil: taken
	batched Mark                 // of the same in a batch, where it differs
}

// messageFacts are each message alone and beside another, on each queue that it is for.
func messageFacts() []Fact {
	var facts []Fact
	for _, queue := range []struct {
		name       string
		attributes map[string]string
		messages   [][]message
	}{
		{"standard", nil, [][]message{onStandard, everywhere}},
		{"fifo", fifoQueue, [][]message{onFIFO, everywhere}},
	} {
		for _, messages := range queue.messages {
			for _, m := range messages {
				facts = append(facts,
					Fact{queue.name + "/send/" + m.name, m.mark, queue.attributes, m.sent},
					Fact{queue.name + "/batch/" + m.name, cmp.Or(m.batched, m.mark), queue.attributes, m.batch})
			}
		}
	}
	return facts
}

func (m message) sent(ctx context.Context, q *Queue) error {
	in := q.complete(m.in)
	_, err := q.Client.SendMessage(ctx, in, withoutChecksum)
	if m.refused != nil {
		if err := m.refused.Check(err); err != nil {
			return err
		}
		return q.holds(ctx)
	}
	if err != nil || in.DelaySeconds > 0 {
		return err
	}
	return q.holds(ctx, arrived(in))
}

// batch: a bad entry fails alone, by its own fault.
func (m message) batch(ctx context.Context, q *Queue) error {
	in, neighbour := q.complete(m.in), q.complete(sqs.SendMessageInput{MessageBody: aws.String("neighbour")})
	if q.fifo() {
		neighbour.MessageDeduplicationId = aws.String("neighbour")
	}
	out, err := q.sendBatch(ctx, entryOf("fact", in), entryOf("neighbour", neighbour))
	if err != nil {
		return err
	}
	if m.refused != nil {
		if err := failedAlone(out, "fact", *m.refused); err != nil {
			return err
		}
		return q.holds(ctx, "neighbour")
	}
	if err := allTaken(out, 2); err != nil || in.DelaySeconds > 0 {
		return err
	}
	return q.holds(ctx, arrived(in), "neighbour")
}

// arrived is the body as it comes out: the SDK replaces what isn't UTF-8.
func arrived(in *sqs.SendMessageInput) string { return strings.ToValidUTF8(*in.MessageBody, "\uFFFD") }

func entryOf(id string, in *sqs.SendMessageInput) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{
		Id: &id, MessageBody: in.MessageBody, DelaySeconds: in.DelaySeconds, MessageAttributes: in.MessageAttributes,
		MessageSystemAttributes: in.MessageSystemAttributes,
		MessageGroupId:          in.MessageGroupId, MessageDeduplicationId: in.MessageDeduplicationId,
	}
}

func allTaken(out *sqs.SendMessageBatchOutput, n int) error {
	if len(out.Failed) > 0 {
		return fmt.Errorf("entry %s was refused with %s", aws.ToString(out.Failed[0].Id), aws.ToString(out.Failed[0].Code))
	}
	if len(out.Successful) != n {
		return fmt.Errorf("%d of %d entries were taken", len(out.Successful), n)
	}
	return nil
}

func failedAlone(out *sqs.SendMessageBatchOutput, id string, refused Refusal) error {
	if len(out.Failed) != 1 {
		return fmt.Errorf("%d entries failed, not %s alone", len(out.Failed), id)
	}
	f := out.Failed[0]
	if aws.ToString(f.Id) != id || aws.ToString(f.Code) != refused.code || !f.SenderFault || aws.ToString(f.Message) == "" {
		return fmt.Errorf("entry %s failed with code %s, sender's fault %v, message %q; not %s with %s and a message, by the sender's fault",
			aws.ToString(f.Id), aws.ToString(f.Code), f.SenderFault, aws.ToString(f.Message), id, refused.code)
	}
	return nil
}
