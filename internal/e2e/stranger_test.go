package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqsfacts"
	"pgrelay/internal/sqstest"
	"pgrelay/internal/stranger"
)

// TestRelaysToAnSQSThatOthersWrote shows that the relay and the in-memory SQS don't just
// agree with each other.
func TestRelaysToAnSQSThatOthersWrote(t *testing.T) {
	t.Parallel()
	const rows, keys = 200, 7
	url := stranger.Start(t)
	standard, fifo := strangersQueue(t, url, standardQueue, nil), strangersQueue(t, url, fifoQueue, map[string]string{"FifoQueue": "true"})
	destination := func(queue string) string {
		return fmt.Sprintf("{type: sqs, queue: %s, endpoint: '%s'}", queue, url)
	}
	w := newWorld(t, sections{
		"destinations": fmt.Sprintf("{queue: %s, fifo: %s}", destination(standardQueue), destination(fifoQueue)),
	})
	insert := func(from, to int) {
		w.exec(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload)
			SELECT kind, 'key' || n % $3, to_jsonb(n) FROM generate_series($1::int, $2) n, unnest('{q,f}'::text[]) kind`, from, to, keys)
	}
	insert(1, rows/2)
	p := w.stream()
	for n := rows/2 + 1; n <= rows; n += 10 {
		insert(n, n+9)
	}
	w.settled(0)
	p.stop()
	sent := w.strings(`SELECT event_id::text FROM pgrelay.outbox_events WHERE event_type = 'q'`)
	require.ElementsMatch(t, sent, eventIDs(drained(t, standard)))
	inOrder := drained(t, fifo)
	requireOrder(t, inOrder)
	sent = w.strings(`SELECT event_id::text FROM pgrelay.outbox_events WHERE event_type = 'f'`)
	require.ElementsMatch(t, sent, eventIDs(inOrder))
}

func strangersQueue(t *testing.T, url, name string, attributes map[string]string) *sqsfacts.Queue {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := sqs.New(sqs.Options{
		BaseEndpoint: &url, Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		HTTPClient: &http.Client{Transport: transport},
	})
	made, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	require.NoError(t, err)
	return &sqsfacts.Queue{Client: client, URL: *made.QueueUrl}
}

// drained are the messages of a queue in the order in which a reader gets them.
func drained(t *testing.T, q *sqsfacts.Queue) []sqstest.Message {
	t.Helper()
	received, err := q.Drain(t.Context())
	require.NoError(t, err)
	messages := make([]sqstest.Message, len(received))
	for i, m := range received {
		messages[i] = sqstest.Message{
			Body: *m.Body, GroupID: m.Attributes["MessageGroupId"],
			Attributes: map[string]sqstest.Attribute{"event_id": {Value: *m.MessageAttributes["event_id"].StringValue}},
		}
	}
	return messages
}
