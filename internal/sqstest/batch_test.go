package sqstest_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

type entries = []types.SendMessageBatchRequestEntry

// batchOf makes n entries with bodies of a length.
func batchOf(n, length int) entries {
	batch := make(entries, n)
	for i := range batch {
		batch[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(strings.Repeat("x", length))}
	}
	return batch
}

func withIDs(ids ...string) entries {
	batch := batchOf(len(ids), 1)
	for i := range ids {
		batch[i].Id = &ids[i]
	}
	return batch
}

func (b *bench) sendBatch(t testing.TB, url string, batch entries) (*sqs.SendMessageBatchOutput, error) {
	t.Helper()
	return b.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: batch})
}

// fifoEntry is an entry of group g that is deduplicated by its id.
func fifoEntry(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body, MessageGroupId: aws.String("g"), MessageDeduplicationId: &id}
}

type attributes = map[string]types.MessageAttributeValue

// text is a String attribute.
func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}
