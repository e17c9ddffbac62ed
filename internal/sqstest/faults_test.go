package sqstest_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

// always is a hook that breaks every send.
func always(f sqstest.Fault) func(sqstest.Request) sqstest.Fault {
	return func(sqstest.Request) sqstest.Fault { return f }
}

func TestAFaultAnswersForTheWholeRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, f := range []struct {
		fault   sqstest.Fault
		status  int
		refused refusal
	}{
		{sqstest.Fault{Code: "KmsThrottled"}, 400, modelled[*types.KmsThrottled]("KMS.ThrottlingException")},
		{sqstest.Fault{Code: "KMS.ThrottlingException"}, 400, modelled[*types.KmsThrottled]("KMS.ThrottlingException")},
		{sqstest.Fault{Code: "RequestThrottled"}, 403, modelled[*types.RequestThrottled]("RequestThrottled")},
		{sqstest.Fault{Code: "OverLimit"}, 403, modelled[*types.OverLimit]("OverLimit")},
		{sqstest.Fault{Code: "QueueDoesNotExist"}, 400, modelled[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue")},
		{sqstest.Fault{Code: "AWS.SimpleQueueService.NonExistentQueue"}, 400, modelled[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue")},
		{sqstest.Fault{Code: "AccessDenied"}, 403, unmodelled("AccessDenied")},
		{sqstest.Fault{Code: "ExpiredToken"}, 403, unmodelled("ExpiredToken")},
		{sqstest.Fault{Code: "InvalidParameterValue", Message: "one of them"}, 400, badParameter},
		{sqstest.Fault{Code: "Throttling", Status: 429}, 429, unmodelled("Throttling")},
		{sqstest.Fault{Code: "ServiceUnavailable"}, 503, unmodelled("ServiceUnavailable")},
		{sqstest.Fault{Code: "Odd", Type: "com.example#OverLimit"}, 400, modelled[*types.OverLimit]("Odd")},
	} {
		b.SetFault(always(f.fault))
		_, err := b.sendBatch(t, b.standard, batchOf(1, 1))
		f.refused.require(t, err)
		require.ErrorContains(t, err, f.fault.Message)
		require.Equal(t, f.status, statusOf(t, err))
	}
	b.SetFault(always(sqstest.Fault{Status: 502}))
	_, err := b.sendBatch(t, b.standard, batchOf(1, 1))
	require.Equal(t, 502, statusOf(t, err))
	b.SetFault(nil)
	require.Empty(t, b.Messages("orders"))
	_, err = b.sendBatch(t, b.standard, batchOf(1, 1))
	require.NoError(t, err)
}

func statusOf(t testing.TB, err error) int {
	t.Helper()
	var response *awshttp.ResponseError
	require.ErrorAs(t, err, &response)
	return response.HTTPStatusCode()
}

func TestAFaultSeesTheDecodedRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var seen atomic.Pointer[sqstest.Request]
	b.SetFault(func(r sqstest.Request) sqstest.Fault {
		seen.Store(&r)
		return sqstest.Fault{}
	})
	entry := fifoEntry("7", "body")
	entry.MessageAttributes = attributes{"event_id": text("e")}
	_, err := b.sendBatch(t, b.fifo, entries{entry})
	require.NoError(t, err)
	require.Equal(t, &sqstest.Request{Action: "SendMessageBatch", Queue: "orders.fifo", AccessKey: "key", Entries: []sqstest.Entry{{
		ID: "7", Body: "body", GroupID: "g", DedupID: "7", Attributes: map[string]sqstest.Attribute{"event_id": {Type: "String", Value: "e"}},
	}}}, seen.Load())
}

func TestAnEntryIsRefusedByFault(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.SetFault(always(sqstest.Fault{Entries: map[string]sqstest.EntryFault{"1": {Code: "InternalError", Message: "sorry"}, "": {Code: "RequestThrottled"}}}))
	out, err := b.sendBatch(t, b.standard, batchOf(3, 1))
	require.NoError(t, err)
	require.Len(t, out.Successful, 2)
	require.Equal(t, []types.BatchResultErrorEntry{{Id: aws.String("1"), Code: aws.String("InternalError"), Message: aws.String("sorry")}}, out.Failed)
	require.Len(t, b.Messages("orders"), 2)

	_, err = b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &b.standard, MessageBody: aws.String("x")})
	modelled[*types.RequestThrottled]("RequestThrottled").require(t, err)
	require.Len(t, b.Messages("orders"), 2)
}

func TestAnEntryIsLeftOutOfTheAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.SetFault(always(sqstest.Fault{Entries: map[string]sqstest.EntryFault{"0": {Omit: true}, "1": {Omit: true, Discard: true}, "2": {Discard: true}}}))
	out, err := b.sendBatch(t, b.standard, withIDs("0", "1", "2", "3"))
	require.NoError(t, err)
	require.Empty(t, out.Failed)
	var ids []string
	for _, s := range out.Successful {
		ids = append(ids, *s.Id)
		require.NotEmpty(t, *s.MessageId)
	}
	require.Equal(t, []string{"2", "3"}, ids)
	require.Len(t, b.Messages("orders"), 2, "0 and 3")
}

func TestAWrongMD5IsAnsweredForWhatWasStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.SetFault(always(sqstest.Fault{Entries: map[string]sqstest.EntryFault{"1": {WrongMD5: true}}}))
	out, err := b.sendBatch(t, b.standard, batchOf(2, 1))
	require.ErrorContains(t, err, "checksum")
	require.Nil(t, out)
	require.Len(t, b.Messages("orders"), 2)

	unchecked := func(o *sqs.Options) { o.DisableMessageChecksumValidation = true }
	out, err = b.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &b.standard, Entries: batchOf(2, 1)}, unchecked)
	require.NoError(t, err)
	require.Equal(t, "9dd4e461268c8034f5c8564e155c67a6", *out.Successful[0].MD5OfMessageBody)
	require.NotEqual(t, *out.Successful[0].MD5OfMessageBody, *out.Successful[1].MD5OfMessageBody)
}

func TestTheConnectionIsCutBeforeOrAfterStoring(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct {
		fault  sqstest.Fault
		stored int
	}{
		"before": {sqstest.Fault{CutBefore: true}, 0},
		"after":  {sqstest.Fault{CutAfter: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.SetFault(always(f.fault))
			_, err := b.sendBatch(t, b.standard, batchOf(1, 1))
			require.ErrorIs(t, err, io.EOF)
			var api smithy.APIError
			require.False(t, errors.As(err, &api))
			require.Len(t, b.Messages("orders"), f.stored)
		})
	}
}

// The SDK's own retry after a lost reply: twice on a standard queue, once on FIFO [S].
func TestALostReplyIsRepeatedByTheSDKAndSwallowedByFIFOAlone(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		b := newBench(t)
		var cuts atomic.Int32
		b.SetFault(func(sqstest.Request) sqstest.Fault { return sqstest.Fault{CutAfter: cuts.Add(1) == 1} })
		retrying := client(t, b.URL, func(o *sqs.Options) { o.RetryMaxAttempts = 3 })
		url, batch, name, want := b.standard, batchOf(2, 1), "orders", 4
		if fifo {
			url, batch, name, want = b.fifo, entries{fifoEntry("1", "x"), fifoEntry("2", "y")}, "orders.fifo", 2
		}
		out, err := retrying.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: batch})
		require.NoError(t, err)
		require.Len(t, out.Successful, 2)
		require.Len(t, b.Messages(name), want)
		require.Equal(t, 2, b.CallCount("SendMessageBatch"))
	}
}

func TestADelayHoldsTheAnswerAndNotTheMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.SetFault(always(sqstest.Fault{Delay: time.Hour}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, c := range []context.Context{ctx, t.Context()} {
		go func() {
			_, err := b.sqs.SendMessageBatch(c, &sqs.SendMessageBatchInput{QueueUrl: &b.standard, Entries: batchOf(1, 1)})
			done <- err
		}()
	}
	require.NoError(t, b.Wait(t.Context(), "orders", 2))
	require.Empty(t, done)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	b.Close()
	require.NoError(t, <-done)
}
