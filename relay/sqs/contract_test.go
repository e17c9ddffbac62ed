package sqs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/publishertest"
	"pgrelay/internal/sqstest"
	"pgrelay/relay"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{plainQueue, fifoQueue} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			publishertest.Run(t, func(t *testing.T, timeout time.Duration) publishertest.Harness {
				return harness(t, queue, timeout)
			})
		})
	}
}

func harness(t *testing.T, queue string, timeout time.Duration) publishertest.Harness {
	ts := sqstest.Start(t)
	ts.CreateQueue(queue, nil)
	d := destination(ts.URL, queue)
	d.Timeout = config.Duration(timeout)
	p, err := New(t.Context(), d, testKeys)
	require.NoError(t, err)
	return publishertest.Harness{
		Publisher: p,
		Received:  func() []publishertest.Received { return received(ts, queue) },
		Hang: func(hung func()) {
			ts.SetFault(func(r sqstest.Request) sqstest.Fault {
				if r.Action != "SendMessageBatch" {
					return sqstest.Fault{}
				}
				hung()
				return sqstest.Fault{Delay: time.Hour}
			})
		},
		Break: func() { ts.SetFault(onSend(sqstest.Fault{Status: 503})) },
		Bad:   &relay.Message{Body: "\x01", Group: "g", DedupID: "d"},
	}
}

func received(ts *sqstest.TestServer, queue string) []publishertest.Received {
	var list []publishertest.Received
	for _, m := range ts.Messages(queue) {
		r := publishertest.Received{Body: m.Body, Group: m.GroupID, Attributes: map[string]string{}}
		for name, a := range m.Attributes {
			r.Attributes[name] = a.Value
		}
		list = append(list, r)
	}
	return list
}
