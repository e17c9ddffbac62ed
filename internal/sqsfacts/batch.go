package sqsfacts

import (
	"context"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

type batch = []types.SendMessageBatchRequestEntry

// batchOf makes n entries with bodies of a length.
func batchOf(n, length int) batch {
	entries := make(batch, n)
	for i := range entries {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: body(length)}
	}
	return entries
}

func withIDs(ids ...string) batch {
	entries := batchOf(len(ids), 1)
	for i := range ids {
		entries[i].Id = &ids[i]
	}
	return entries
}

// fifoEntry is an entry of group g that is deduplicated by its id.
func fifoEntry(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body, MessageGroupId: aws.String("g"), MessageDeduplicationId: &id}
}

// wholeBatches are batches that are refused as such: nothing of them is stored.
func wholeBatches() []Fact {
	badID := Modelled[*types.InvalidBatchEntryId]("AWS.SimpleQueueService.InvalidBatchEntryId")
	tooMany := Modelled[*types.TooManyEntriesInBatchRequest]("AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
	tooLong := Modelled[*types.BatchRequestTooLong]("AWS.SimpleQueueService.BatchRequestTooLong")
	empty := Modelled[*types.EmptyBatchRequest]("AWS.SimpleQueueService.EmptyBatchRequest")
	repeated := Modelled[*types.BatchEntryIdsNotDistinct]("AWS.SimpleQueueService.BatchEntryIdsNotDistinct")
	noGroup, noDedup := batch{fifoEntry("0", "x"), fifoEntry("1", "x")}, batch{fifoEntry("0", "x"), fifoEntry("1", "x")}
	noGroup[1].MessageGroupId = nil
	noDedup[1].MessageDeduplicationId = nil
	var facts []Fact
	for _, f := range []struct {
		name       string
		mark       Mark
		attributes map[string]string
		batch      batch
		refused    Refusal
		words      string
	}{
		{"no entry", Recorded, nil, batch{}, empty, ""},
		{"eleven entries", Recorded, nil, batchOf(11, 1), tooMany, "Maximum number of entries per request are 10."},
		{"eleven entries, counted", Recorded, nil, batchOf(11, 1), tooMany, "You have sent 11."},
		{"empty id", Recorded, nil, withIDs(""), badID, ""},
		{"id of 81", Recorded, nil, withIDs(strings.Repeat("i", 81)), badID, ""},
		{"id with a period", Recorded, nil, withIDs("a.b"), badID, ""},
		{"id twice", Recorded, nil, withIDs("a", "b", "a"), repeated, ""},
		{"over 1 MiB in sum", Recorded, nil, batchOf(8, mebibyte/8+1), tooLong, ""},
		{"one entry over 1 MiB", Recorded, nil, batchOf(1, mebibyte+1), tooLong, ""},
		{"one FIFO entry without group", Recorded, fifoQueue, noGroup, badParameter, "The request must contain the parameter MessageGroupId."},
		{"one FIFO entry without deduplication id", Recorded, fifoQueue, noDedup, badParameter, "The request must contain the parameter MessageDeduplicationId."},
	} {
		facts = append(facts, Fact{"whole batch/" + f.name, f.mark, f.attributes, func(ctx context.Context, q *Queue) error {
			_, err := q.sendBatch(ctx, f.batch...)
			if err := f.refused.Check(err); err != nil {
				return err
			}
			if err := says(err, f.words); err != nil {
				return err
			}
			return q.holds(ctx)
		}})
	}
	return append(facts, Fact{"whole batch/no such queue", Recorded, nil, func(ctx context.Context, q *Queue) error {
		nowhere := Queue{Client: q.Client, URL: q.URL + "x"}
		_, err := nowhere.sendBatch(ctx, batchOf(1, 1)...)
		return noQueue.Check(err)
	}})
}

// goodBatches are batches at their limits.
func goodBatches() []Fact {
	var facts []Fact
	for _, f := range []struct {
		name       string
		attributes map[string]string
		batch      batch
	}{
		{"ten entries", nil, batchOf(10, 1)},
		{"ids of all characters, 80 of them", nil, withIDs("aZ09_-", strings.Repeat("i", 80))},
		{"1 MiB in sum", nil, batchOf(8, mebibyte/8)},
		{"sum over the limit of the queue", smallQueue, batchOf(10, 1024)},
	} {
		facts = append(facts, Fact{"good batch/" + f.name, Recorded, f.attributes, func(ctx context.Context, q *Queue) error {
			out, err := q.sendBatch(ctx, f.batch...)
			if err != nil {
				return err
			}
			return allTaken(out, len(f.batch))
		}})
	}
	return facts
}

// entries are those that fail alone for what only a batch can show.
func entries() []Fact {
	return []Fact{
		{"entry/over the limit of the queue", Recorded, smallQueue, func(ctx context.Context, q *Queue) error {
			entries := batchOf(3, 1024)
			*entries[1].MessageBody += "x"
			return q.refuses(ctx, entries, "1", badParameter)
		}},
		{"entry/without body", Unverified, nil, func(ctx context.Context, q *Queue) error {
			entries := batchOf(2, 1)
			*entries[0].MessageBody = ""
			return q.refuses(ctx, entries, "0", missing)
		}},
		{"entry/those behind a refused one of their group are stored", Unverified, fifoQueue, func(ctx context.Context, q *Queue) error {
			entries := batch{fifoEntry("0", "one"), fifoEntry("1", "two\x00"), fifoEntry("2", "three")}
			if err := q.refuses(ctx, entries, "1", badContents); err != nil {
				return err
			}
			return q.holds(ctx, "one", "three")
		}},
	}
}

// refuses sends a batch of which one entry has to fail.
func (q *Queue) refuses(ctx context.Context, entries batch, id string, refused Refusal) error {
	out, err := q.sendBatch(ctx, entries...)
	if err != nil {
		return err
	}
	return failedAlone(out, id, refused)
}
