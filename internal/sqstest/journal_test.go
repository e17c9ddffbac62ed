package sqstest_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

func TestWaitReturnsWithTheNthMessageOfAQueueYetToCome(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	done := make(chan error, 1)
	go func() { done <- b.Wait(t.Context(), "later", 3) }()
	url := b.CreateQueue("later", nil)
	for range 2 {
		require.Empty(t, done)
		_, err := b.sendBatch(t, url, batchOf(2, 1))
		require.NoError(t, err)
	}
	require.NoError(t, <-done)
	require.Equal(t, 4, b.Count("later"))
	require.Len(t, b.MessagesFrom("later", 3), 1)
	require.Empty(t, b.MessagesFrom("later", 9))
}

func TestWaitEndsWithItsContextAndWithTheServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tired := errors.New("tired")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(tired)
	require.ErrorIs(t, b.Wait(ctx, "orders", 1), tired)
	b.Close()
	require.ErrorIs(t, b.Wait(t.Context(), "orders", 1), net.ErrClosed)
}

func TestHistoryKeepsTheLastOnesAndCountsAll(t *testing.T) {
	t.Parallel()
	b := newBench(t, sqstest.WithHistory(5))
	for i := range 23 {
		b.sendPlain(t, strconv.Itoa(i))
	}
	bodies := b.bodies("orders")
	require.GreaterOrEqual(t, len(bodies), 5)
	require.Less(t, len(bodies), 10)
	require.Equal(t, "22", bodies[len(bodies)-1])
	require.Less(t, len(b.Calls()), 10)
	require.Equal(t, 23, b.Count("orders"))
	require.Equal(t, 23, b.CallCount("SendMessage"))
	require.Equal(t, "21", b.MessagesFrom("orders", 21)[0].Body)
}

func TestCallsTellWhatCameIn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.sendBatch(t, b.standard, batchOf(3, 1))
	require.NoError(t, err)
	b.receive(t.Context(), t, b.fifo)
	calls := b.Calls()
	require.Len(t, calls, 2)
	require.False(t, calls[0].At.IsZero())
	require.True(t, calls[0].Authorized)
	require.Equal(t, "SendMessageBatch orders 3", calls[0].Action+" "+calls[0].Queue+" "+strconv.Itoa(calls[0].Entries))
	require.Equal(t, "ReceiveMessage orders.fifo 0", calls[1].Action+" "+calls[1].Queue+" "+strconv.Itoa(calls[1].Entries))
}

func TestSendersAndReadersRunSideBySide(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const senders, batches = 8, 25
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range batches {
				_, err := b.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &b.standard, Entries: batchOf(10, 1)})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	read := 0
	for read < senders*batches*10 {
		read += len(b.receive(t.Context(), t, b.standard, func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = 20 }))
	}
	wg.Wait()
	require.Empty(t, b.receive(t.Context(), t, b.standard))
	require.Equal(t, read, b.Count("orders"))
}
