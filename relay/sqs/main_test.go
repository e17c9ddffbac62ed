package sqs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pgrelay/internal/config"
	"pgrelay/internal/sqstest"
	"pgrelay/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	plainQueue = "bookings"
	fifoQueue  = "bookings.fifo"
)

var testKeys = Options{Credentials: credentials.NewStaticCredentialsProvider("AKIDTEST", "SECRETTEST", "")}

// destination is queue at a local server.
func destination(url, queue string) config.Destination {
	return config.Destination{
		Type: "sqs", Queue: queue, Region: "eu-west-1", Endpoint: url,
		Concurrency: 8, Timeout: config.Duration(time.Minute),
	}
}

// unopened makes a publisher that the test closes.
func unopened(t *testing.T, d config.Destination) *Publisher {
	t.Helper()
	p, err := New(t.Context(), d, testKeys)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// start makes an open publisher on a new server's new queue.
func start(t *testing.T, queue string) (*Publisher, *sqstest.TestServer) {
	t.Helper()
	ts := sqstest.Start(t)
	ts.CreateQueue(queue, nil)
	p := unopened(t, destination(ts.URL, queue))
	require.NoError(t, p.Open(t.Context()))
	return p, ts
}

// numbered makes messages of which each has a group of its own.
func numbered(n int) []*relay.Message {
	batch := make([]*relay.Message, n)
	for i := range batch {
		id := string(rune('a' + i))
		batch[i] = &relay.Message{Body: "body-" + id, Group: "group-" + id, DedupID: "dedup-" + id}
	}
	return batch
}

func outcomes(results []relay.Result) []relay.Outcome {
	list := make([]relay.Outcome, len(results))
	for i, r := range results {
		list[i] = r.Outcome
	}
	return list
}

// all is n times one outcome, with others at some places.
func all(n int, o relay.Outcome, others map[int]relay.Outcome) []relay.Outcome {
	list := make([]relay.Outcome, n)
	for i := range list {
		list[i] = o
		if other, ok := others[i]; ok {
			list[i] = other
		}
	}
	return list
}

func stored(ts *sqstest.TestServer, queue string) []string {
	var list []string
	for _, m := range ts.Messages(queue) {
		list = append(list, m.Body)
	}
	return list
}

// onSend faults batches and lets other requests through.
func onSend(fault sqstest.Fault) func(sqstest.Request) sqstest.Fault {
	return func(r sqstest.Request) sqstest.Fault {
		if r.Action != "SendMessageBatch" {
			return sqstest.Fault{}
		}
		return fault
	}
}

// poisoned refuses whole requests that hold the body.
func poisoned(body string, fault sqstest.Fault) func(sqstest.Request) sqstest.Fault {
	return func(r sqstest.Request) sqstest.Fault {
		for _, e := range r.Entries {
			if strings.Contains(e.Body, body) {
				return fault
			}
		}
		return sqstest.Fault{}
	}
}

// late publishes, each time with more of it, until a call was sent before its time was over.
func late(t *testing.T, p *Publisher, batch func() []*relay.Message, sent func() bool) ([]relay.Result, *relay.Fault) {
	t.Helper()
	for p.timeout = 300 * time.Millisecond; p.timeout < time.Minute; p.timeout *= 2 {
		if results, fault := publish(t, p, batch()); sent() {
			return results, fault
		}
	}
	require.FailNow(t, "no call was sent in time")
	return nil, nil
}

func publish(t *testing.T, p *Publisher, batch []*relay.Message) ([]relay.Result, *relay.Fault) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results, fault := p.Publish(ctx, batch)
	require.Len(t, results, len(batch))
	return results, fault
}
