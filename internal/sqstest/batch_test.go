package sqstest_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
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

func TestABatchIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	badID := modelled[*types.InvalidBatchEntryId]("AWS.SimpleQueueService.InvalidBatchEntryId")
	noGroup := withIDs("0", "1")
	for i := range noGroup {
		noGroup[i].MessageDeduplicationId = aws.String(strconv.Itoa(i))
	}
	noGroup[0].MessageGroupId = aws.String("g")
	noDedup := withIDs("0", "1")
	for i := range noDedup {
		noDedup[i].MessageGroupId = aws.String("g")
	}
	for _, f := range []struct {
		name, mark, queue string
		batch             entries
		refused           refusal
		message           string
	}{
		{"no entry", "R", b.standard, entries{}, modelled[*types.EmptyBatchRequest]("AWS.SimpleQueueService.EmptyBatchRequest"), ""},
		{"eleven entries", "R", b.standard, batchOf(11, 1), modelled[*types.TooManyEntriesInBatchRequest]("AWS.SimpleQueueService.TooManyEntriesInBatchRequest"), "Maximum number of entries per request are 10. You have sent 11."},
		{"empty id", "R", b.standard, withIDs(""), badID, ""},
		{"id of 81", "R", b.standard, withIDs(strings.Repeat("i", 81)), badID, ""},
		{"id with a period", "R", b.standard, withIDs("a.b"), badID, ""},
		{"id twice", "R", b.standard, withIDs("a", "b", "a"), modelled[*types.BatchEntryIdsNotDistinct]("AWS.SimpleQueueService.BatchEntryIdsNotDistinct"), ""},
		{"over 1 MiB in sum", "R", b.standard, batchOf(8, mebibyte/8+1), modelled[*types.BatchRequestTooLong]("AWS.SimpleQueueService.BatchRequestTooLong"), ""},
		{"one entry over 1 MiB", "R", b.standard, batchOf(1, mebibyte+1), modelled[*types.BatchRequestTooLong]("AWS.SimpleQueueService.BatchRequestTooLong"), ""},
		{"one FIFO entry without group", "R", b.fifo, noGroup, badParameter, "The request must contain the parameter MessageGroupId."},
		{"one FIFO entry without deduplication id", "R", b.fifo, noDedup, badParameter, "The request must contain the parameter MessageDeduplicationId."},
		{"no such queue", "R", b.standard + "x", batchOf(1, 1), modelled[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue"), ""},
	} {
		t.Run(fmt.Sprintf("%s [%s]", f.name, f.mark), func(t *testing.T) {
			_, err := b.sendBatch(t, f.queue, f.batch)
			f.refused.require(t, err)
			require.ErrorContains(t, err, f.message)
		})
	}
	require.Empty(t, b.Messages("orders"))
	require.Empty(t, b.Messages("orders.fifo"))
}

func TestABatchIsTakenUpToItsLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	small := b.CreateQueue("small", map[string]string{"MaximumMessageSize": "1024"})
	for _, f := range []struct {
		name, mark, queue string
		batch             entries
	}{
		{"ten entries", "R", b.standard, batchOf(10, 1)},
		{"ids of all characters, 80 of them", "R", b.standard, withIDs("aZ09_-", strings.Repeat("i", 80))},
		{"1 MiB in sum", "R", b.standard, batchOf(8, mebibyte/8)},
		{"sum over the limit of the queue", "R", small, batchOf(10, 1024)},
	} {
		t.Run(fmt.Sprintf("%s [%s]", f.name, f.mark), func(t *testing.T) {
			out, err := b.sendBatch(t, f.queue, f.batch)
			require.NoError(t, err)
			require.Len(t, out.Successful, len(f.batch))
		})
	}
}

func TestAnEntryOverTheLimitOfTheQueueFailsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	small := b.CreateQueue("small", map[string]string{"MaximumMessageSize": "1024"})
	batch := batchOf(3, 1024)
	*batch[1].MessageBody += "x"
	out, err := b.sendBatch(t, small, batch)
	require.NoError(t, err)
	require.Len(t, out.Successful, 2)
	require.Len(t, out.Failed, 1)
	require.Equal(t, "1", *out.Failed[0].Id)
	require.Equal(t, "InvalidParameterValue", *out.Failed[0].Code)
	require.True(t, out.Failed[0].SenderFault)
}

// Unverified: AWS may refuse the whole request.
func TestAnEntryWithoutBodyFailsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	batch := batchOf(2, 1)
	*batch[0].MessageBody = ""
	out, err := b.sendBatch(t, b.standard, batch)
	require.NoError(t, err)
	require.Equal(t, "MissingParameter", *out.Failed[0].Code)
	require.Len(t, out.Successful, 1)
}

// Unverified: what AWS does with entries behind a refused one.
func TestEntriesBehindARefusedOneOfTheirGroupAreStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	batch := entries{fifoEntry("0", "one"), fifoEntry("1", "two\x00"), fifoEntry("2", "three")}
	out, err := b.sendBatch(t, b.fifo, batch)
	require.NoError(t, err)
	require.Len(t, out.Failed, 1)
	require.Equal(t, []string{"one", "three"}, b.receive(t.Context(), t, b.fifo))
}

// fifoEntry is an entry of group g that is deduplicated by its id.
func fifoEntry(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body, MessageGroupId: aws.String("g"), MessageDeduplicationId: &id}
}
