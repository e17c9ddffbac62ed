package sqstest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

func TestReceiveRefusesWhatIsOutOfRange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, in := range []sqs.ReceiveMessageInput{
		{MaxNumberOfMessages: 11}, {MaxNumberOfMessages: -1}, {WaitTimeSeconds: 21}, {VisibilityTimeout: 43_201},
	} {
		in.QueueUrl = &b.standard
		_, err := b.sqs.ReceiveMessage(t.Context(), &in)
		badParameter.require(t, err)
	}
}

func TestAMessageIsHiddenForItsVisibilityTimeout(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_900_000_000_000)
	b := newBench(t, sqstest.WithClock(func() time.Time { return at }))
	b.sendPlain(t, "x")
	b.Advance(time.Second)
	require.Equal(t, []string{"x"}, b.receive(t.Context(), t, b.standard))
	b.Advance(29 * time.Second)
	require.Empty(t, b.receive(t.Context(), t, b.standard))
	b.Advance(time.Second)
	out, err := b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &b.standard, MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			"ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp", "SentTimestamp", "MessageGroupId",
		},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"ApproximateReceiveCount": "2", "SentTimestamp": "1900000000000", "ApproximateFirstReceiveTimestamp": "1900000001000",
	}, out.Messages[0].Attributes)
}

func (b *bench) sendPlain(t testing.TB, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		_, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &b.standard, MessageBody: &body})
		require.NoError(t, err)
	}
}

func TestChangedVisibilityHoldsFromNow(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprintf("fifo %v", fifo), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			url := b.standard
			b.sendPlain(t, "x")
			if fifo {
				url = b.fifo
				b.send(t, url, "x", "g", "1")
			}
			out, err := b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url})
			require.NoError(t, err)
			change := &sqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: out.Messages[0].ReceiptHandle, VisibilityTimeout: 100}
			_, err = b.sqs.ChangeMessageVisibility(t.Context(), change)
			require.NoError(t, err)
			b.Advance(99 * time.Second)
			require.Empty(t, b.receive(t.Context(), t, url))
			change.VisibilityTimeout = 0
			_, err = b.sqs.ChangeMessageVisibility(t.Context(), change)
			require.NoError(t, err)
			_, err = b.sqs.ChangeMessageVisibility(t.Context(), change)
			modelled[*types.MessageNotInflight]("AWS.SimpleQueueService.MessageNotInflight").require(t, err)
			require.Equal(t, []string{"x"}, b.receive(t.Context(), t, url))
		})
	}
}

func TestOnlyTheLastReceiptHandleDeletes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sendPlain(t, "x")
	handle := func() *string {
		out, err := b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &b.standard})
		require.NoError(t, err)
		require.Len(t, out.Messages, 1)
		return out.Messages[0].ReceiptHandle
	}
	first := handle()
	b.Advance(time.Minute)
	second := handle()
	b.Advance(time.Minute)
	out, err := b.sqs.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &b.standard, Entries: []types.DeleteMessageBatchRequestEntry{
		{Id: aws.String("old"), ReceiptHandle: first}, {Id: aws.String("bad"), ReceiptHandle: aws.String("nonsense")},
	}})
	require.NoError(t, err)
	require.Equal(t, "old", *out.Successful[0].Id)
	require.Equal(t, "bad", *out.Failed[0].Id)
	require.Equal(t, "ReceiptHandleIsInvalid", *out.Failed[0].Code)
	third := handle()
	require.NotEqual(t, second, third)
	for range 2 { // deleting what is gone succeeds
		_, err = b.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &b.standard, ReceiptHandle: third})
		require.NoError(t, err)
	}
	b.Advance(time.Hour)
	require.Empty(t, b.receive(t.Context(), t, b.standard))
	_, err = b.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &b.standard, ReceiptHandle: aws.String("nonsense")})
	modelled[*types.ReceiptHandleIsInvalid]("ReceiptHandleIsInvalid").require(t, err)
}

func TestADelayedMessageComesWhenItIsDue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	late := b.CreateQueue("late", map[string]string{"DelaySeconds": "100"})
	_, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &late, MessageBody: aws.String("of its own"), DelaySeconds: 10})
	require.NoError(t, err)
	// A zero isn't sent by the SDK, so it can't override the queue's delay.
	_, err = b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &late, MessageBody: aws.String("of the queue"), DelaySeconds: 0})
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, b.Messages("late")[0].Delay)
	require.Empty(t, b.receive(t.Context(), t, late))
	b.Advance(10 * time.Second)
	require.Equal(t, []string{"of its own"}, b.receive(t.Context(), t, late))
	b.Advance(90 * time.Second)
	require.Contains(t, b.receive(t.Context(), t, late), "of the queue")
}

func TestAMessagePastItsRetentionIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	url := b.CreateQueue("short.fifo", map[string]string{"MessageRetentionPeriod": "60"})
	b.send(t, url, "one", "g", "1")
	b.Advance(30 * time.Second)
	b.send(t, url, "two", "g", "2")
	b.Advance(30 * time.Second)
	require.Equal(t, []string{"two"}, b.receive(t.Context(), t, url))
}

func TestALongPollEndsWithTheFirstMessage(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(t *testing.T, b *bench){
		"sent":      func(t *testing.T, b *bench) { b.sendPlain(t, "x") },
		"due":       func(_ *testing.T, b *bench) { b.Advance(15 * time.Minute) },
		"by itself": func(*testing.T, *bench) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			delay := map[string]int32{"due": 900, "by itself": 1}[name]
			if delay > 0 {
				_, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &b.standard, MessageBody: aws.String("x"), DelaySeconds: delay})
				require.NoError(t, err)
			}
			got := make(chan []string, 1)
			started := time.Now()
			go func() {
				got <- b.receive(t.Context(), t, b.standard, func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = 20 })
			}()
			require.Eventually(t, func() bool { return b.CallCount("ReceiveMessage") == 1 }, time.Minute, time.Millisecond)
			act(t, b)
			require.Equal(t, []string{"x"}, <-got)
			require.Less(t, time.Since(started), 18*time.Second)
		})
	}
}

func TestALongPollEndsEmptyAfterItsTimeAndAtClose(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	url := b.CreateQueue("waiting", map[string]string{"ReceiveMessageWaitTimeSeconds": "1"})
	started := time.Now()
	require.Empty(t, b.receive(t.Context(), t, url))
	require.GreaterOrEqual(t, time.Since(started), time.Second)
	got := make(chan []string, 1)
	go func() {
		got <- b.receive(t.Context(), t, url, func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = 20 })
	}()
	require.Eventually(t, func() bool { return b.CallCount("ReceiveMessage") == 2 }, time.Minute, time.Millisecond)
	b.Close()
	require.Empty(t, <-got)
}

func TestReceiveGivesTheAttributesThatAreAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &b.standard, MessageBody: aws.String("x"), MessageAttributes: attributes{
		"a.b": text("1"), "a.c": text("2"), "d": text("3"),
	}})
	require.NoError(t, err)
	for _, f := range []struct{ ask, want []string }{
		{nil, nil},
		{[]string{"d"}, []string{"d"}},
		{[]string{"a.*"}, []string{"a.b", "a.c"}},
		{[]string{".*"}, []string{"a.b", "a.c", "d"}},
		{[]string{"All"}, []string{"a.b", "a.c", "d"}},
	} {
		out, err := b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &b.standard, MessageAttributeNames: f.ask})
		require.NoError(t, err)
		var names []string
		for name := range out.Messages[0].MessageAttributes {
			names = append(names, name)
		}
		require.ElementsMatch(t, f.want, names)
		require.Equal(t, f.want == nil, out.Messages[0].MD5OfMessageAttributes == nil)
		b.Advance(time.Minute)
	}
}

func TestTheClockCanBeGiven(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	b := newBench(t, sqstest.WithClock(func() time.Time { return at }))
	b.sendPlain(t, "x")
	b.Advance(time.Hour)
	b.sendPlain(t, "y")
	require.Equal(t, at, b.Messages("orders")[0].ReceivedAt)
	require.Equal(t, at.Add(time.Hour), b.Messages("orders")[1].ReceivedAt)
}
