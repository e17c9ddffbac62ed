package sqsfacts

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const mebibyte = 1 << 20

var smallQueue = map[string]string{"MaximumMessageSize": "1024"}

// sizes: a message is counted in bytes, with its attributes.
func sizes() []Fact {
	full := strings.Repeat("é", mebibyte/2)
	trace := withSystem("AWSTraceHeader", text("Root=1"))
	trace.MessageBody = body(mebibyte)
	with := func(length int, value types.MessageAttributeValue) sqs.SendMessageInput {
		return sqs.SendMessageInput{MessageBody: body(length), MessageAttributes: attributes{"ab": value}}
	}
	var facts []Fact
	for _, f := range []struct {
		name       string
		mark       Mark
		attributes map[string]string
		in         sqs.SendMessageInput
		fits       bool
	}{
		{"1 MiB", Recorded, nil, sqs.SendMessageInput{MessageBody: body(mebibyte)}, true},
		{"1 MiB and a byte", Recorded, nil, sqs.SendMessageInput{MessageBody: body(mebibyte + 1)}, false},
		{"characters are not bytes", Documented, nil, sqs.SendMessageInput{MessageBody: aws.String(full + "x")}, false},
		{"multi-byte text that fills it", Documented, nil, sqs.SendMessageInput{MessageBody: &full}, true},
		{"emoji that fill it", Documented, nil, sqs.SendMessageInput{MessageBody: aws.String(strings.Repeat("😀", mebibyte/4))}, true},
		{"name, type and value count", Recorded, nil, with(mebibyte-9, text("x")), true},
		{"name, type and value count, one more", Recorded, nil, with(mebibyte-8, text("x")), false},
		{"binary counts as itself", Documented, nil, with(mebibyte-11, binary("xyz")), true},
		{"trace header is free", Documented, nil, trace, true},
		{"group and deduplication id are free", Unverified, fifoQueue, sqs.SendMessageInput{MessageBody: body(mebibyte)}, true},
		{"limit of the queue", Documented, smallQueue, sqs.SendMessageInput{MessageBody: body(1024)}, true},
		{"over the limit of the queue", Documented, smallQueue, sqs.SendMessageInput{MessageBody: body(1025)}, false},
	} {
		facts = append(facts, Fact{"size/" + f.name, f.mark, f.attributes, func(ctx context.Context, q *Queue) error {
			_, err := q.Client.SendMessage(ctx, q.complete(f.in))
			if f.fits {
				return err
			}
			if err := badParameter.Check(err); err != nil {
				return err
			}
			return says(err, "Message must be shorter than")
		}})
	}
	return facts
}

func body(length int) *string { return aws.String(strings.Repeat("x", length)) }

// says asks for words of AWS's in an error.
func says(err error, words string) error {
	if !strings.Contains(err.Error(), words) {
		return fmt.Errorf("refused without the words %q: %w", words, err)
	}
	return nil
}
