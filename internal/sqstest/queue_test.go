package sqstest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

type settings = map[string]string

func TestCreateQueueTakesAndRefuses(t *testing.T) {
	t.Parallel()
	badName := modelled[*types.InvalidAttributeName]("InvalidAttributeName")
	badValue := modelled[*types.InvalidAttributeValue]("InvalidAttributeValue")
	for _, f := range []struct {
		name, mark, queue string
		attrs             settings
		refused           *refusal
	}{
		{"name of 80", "D", strings.Repeat("q", 80), nil, nil},
		{"name of 81", "D", strings.Repeat("q", 81), nil, &badParameter},
		{"name with all characters", "D", "aZ09_-", nil, nil},
		{"name with a period", "D", "a.b", nil, &badParameter},
		{"empty name", "D", "", nil, &badParameter},
		{"FIFO", "D", "a.fifo", settings{"FifoQueue": "true"}, nil},
		{"FIFO name of 80 with its suffix", "D", strings.Repeat("q", 75) + ".fifo", settings{"FifoQueue": "true"}, nil},
		{"FIFO name of 81 with its suffix", "D", strings.Repeat("q", 76) + ".fifo", settings{"FifoQueue": "true"}, &badParameter},
		{"FIFO without its suffix", "D", "a", settings{"FifoQueue": "true"}, &badParameter},
		{"suffix without FIFO", "D", "a.fifo", nil, &badParameter},
		{"FIFO attribute on a standard queue", "D", "a", settings{"ContentBasedDeduplication": "true"}, &badName},
		{"unknown attribute", "D", "a", settings{"Colour": "red"}, &badName},
		{"attribute that is computed", "D", "a", settings{"QueueArn": "x"}, &badName},
		{"size of 1,024", "D", "a", settings{"MaximumMessageSize": "1024"}, nil},
		{"size of 1,023", "D", "a", settings{"MaximumMessageSize": "1023"}, &badValue},
		{"size of 1 MiB", "D", "a", settings{"MaximumMessageSize": "1048576"}, nil},
		{"size over 1 MiB", "D", "a", settings{"MaximumMessageSize": "1048577"}, &badValue},
		{"delay of 901", "D", "a", settings{"DelaySeconds": "901"}, &badValue},
		{"retention of a minute", "D", "a", settings{"MessageRetentionPeriod": "60"}, nil},
		{"retention of 59", "D", "a", settings{"MessageRetentionPeriod": "59"}, &badValue},
		{"retention of 14 days", "D", "a", settings{"MessageRetentionPeriod": "1209600"}, nil},
		{"retention over 14 days", "D", "a", settings{"MessageRetentionPeriod": "1209601"}, &badValue},
		{"high throughput", "D", "a.fifo", settings{"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}, nil},
		{"half of high throughput", "D", "a.fifo", settings{"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"}, &badValue},
		{"same queue again", "D", "orders", settings{"DelaySeconds": "0"}, nil},
		{"same name, other attributes", "R", "orders", settings{"DelaySeconds": "1"}, ptr(modelled[*types.QueueNameExists]("QueueAlreadyExists"))},
	} {
		t.Run(fmt.Sprintf("%s [%s]", f.name, f.mark), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			out, err := b.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &f.queue, Attributes: f.attrs})
			if f.refused != nil {
				f.refused.require(t, err)
				return
			}
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(*out.QueueUrl, "/"+f.queue))
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestQueueAttributesAreReadAndSet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.sqs.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &b.fifo, Attributes: settings{"MaximumMessageSize": "2048"}})
	require.NoError(t, err)
	get := func(names ...types.QueueAttributeName) (settings, error) {
		out, err := b.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &b.fifo, AttributeNames: names})
		if err != nil {
			return nil, err
		}
		return out.Attributes, nil
	}
	attrs, err := get("MaximumMessageSize", "FifoQueue", "DeduplicationScope")
	require.NoError(t, err)
	require.Equal(t, settings{"MaximumMessageSize": "2048", "FifoQueue": "true", "DeduplicationScope": "queue"}, attrs)
	_, err = get("Colour")
	modelled[*types.InvalidAttributeName]("InvalidAttributeName").require(t, err)
	_, err = b.sqs.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &b.fifo, Attributes: settings{"FifoThroughputLimit": "perMessageGroupId"}})
	modelled[*types.InvalidAttributeValue]("InvalidAttributeValue").require(t, err)

	b.send(t, b.fifo, "one", "g", "1")
	b.send(t, b.fifo, "two", "h", "2")
	b.receive(t.Context(), t, b.fifo, func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = 1 })
	attrs, err = get("All")
	require.NoError(t, err)
	require.Equal(t, "1", attrs["ApproximateNumberOfMessages"])
	require.Equal(t, "1", attrs["ApproximateNumberOfMessagesNotVisible"])
	require.Equal(t, "arn:aws:sqs:us-east-1:000000000000:orders.fifo", attrs["QueueArn"])
}

func TestQueuesAreFoundByNameAndPrefix(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.CreateQueue("other", nil)
	found, err := b.sqs.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("orders")})
	require.NoError(t, err)
	require.Equal(t, b.URL+"/000000000000/orders", *found.QueueUrl)
	_, err = b.sqs.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("nowhere")})
	noQueue := modelled[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue")
	noQueue.require(t, err)
	list, err := b.sqs.ListQueues(t.Context(), &sqs.ListQueuesInput{QueueNamePrefix: aws.String("ord")})
	require.NoError(t, err)
	require.Equal(t, []string{b.standard, b.fifo}, list.QueueUrls)
}

func TestADeletedQueueIsGoneAndItsNameIsTakenForAMinute(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sendPlain(t, "before")
	_, err := b.sqs.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &b.standard})
	require.NoError(t, err)
	_, err = b.sendBatch(t, b.standard, batchOf(1, 1))
	modelled[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue").require(t, err)
	create := &sqs.CreateQueueInput{QueueName: aws.String("orders")}
	_, err = b.sqs.CreateQueue(t.Context(), create)
	modelled[*types.QueueDeletedRecently]("AWS.SimpleQueueService.QueueDeletedRecently").require(t, err)
	b.Advance(time.Minute)
	_, err = b.sqs.CreateQueue(t.Context(), create)
	require.NoError(t, err)
	b.sendPlain(t, "after")
	require.Equal(t, []string{"before", "after"}, b.bodies("orders"), "the journal outlives the queue")
	require.Equal(t, []string{"after"}, b.receive(t.Context(), t, b.standard))

	// The Go API has no such wait.
	b.DeleteQueue("orders")
	b.CreateQueue("orders", nil)
	require.Empty(t, b.receive(t.Context(), t, b.standard))
}

func TestAQueueIsPurgedOnceAMinute(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	purge := func() error {
		_, err := b.sqs.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &b.standard})
		return err
	}
	b.sendPlain(t, "x", "y")
	b.receive(t.Context(), t, b.standard, func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = 1 })
	require.NoError(t, purge())
	modelled[*types.PurgeQueueInProgress]("AWS.SimpleQueueService.PurgeQueueInProgress").require(t, purge())
	b.Advance(time.Minute)
	require.Empty(t, b.receive(t.Context(), t, b.standard))
	require.NoError(t, purge())
}

func TestCreatingAQueueInGoPanicsOnWhatAWSRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Panics(t, func() { b.CreateQueue("a b", nil) })
	require.Panics(t, func() { b.CreateQueue("a", settings{"DelaySeconds": "-1"}) })
}
