package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/exampletest"
	"pgrelay/internal/sqstest"
)

const (
	standard = "bookings"
	fifo     = "bookings.fifo"
	booking  = `{"room": "room-7"}`
)

type world struct {
	*exampletest.World
	t      *testing.T
	client *sqs.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: exampletest.New(t, standard, fifo), t: t}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w.client = sqs.New(sqs.Options{
		BaseEndpoint: &w.SQS.URL, Region: "eu-west-1", RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""), HTTPClient: &http.Client{Transport: transport},
	})
	return w
}

// consumer is a process of its own: it has a session of its own.
func (w *world) consumer(queue string) *consumer {
	return &consumer{sqs: w.client, queue: w.SQS.URL + "/000000000000/" + queue, db: w.Connect(), effect: countGuests, timeout: exampletest.Patience}
}

// send sends the event as pgrelay does; group and deduplication id are a FIFO queue's.
func (w *world) send(queue, event, group, body string) {
	w.t.Helper()
	in := &sqs.SendMessageInput{QueueUrl: aws.String(w.SQS.URL + "/000000000000/" + queue), MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{
		"event_id":   {DataType: aws.String("String"), StringValue: &event},
		"event_type": {DataType: aws.String("String"), StringValue: aws.String("booking.confirmed")},
	}}
	if queue == fifo {
		in.MessageGroupId, in.MessageDeduplicationId = &group, &event
	}
	_, err := w.client.SendMessage(w.t.Context(), in)
	require.NoError(w.t, err)
}

// left is how many messages a queue still has, received or not.
func (w *world) left(queue string) int {
	w.t.Helper()
	out, err := w.client.GetQueueAttributes(w.t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(w.SQS.URL + "/000000000000/" + queue), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	require.NoError(w.t, err)
	n := 0
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"} {
		var some int
		_, err := fmt.Sscan(out.Attributes[name], &some)
		require.NoError(w.t, err)
		n += some
	}
	return n
}

func (w *world) guests() []string {
	w.t.Helper()
	return w.Strings(`SELECT name || ' ' || guests FROM rooms ORDER BY name`)
}

// drain consumes until the queue is empty.
func (w *world) drain(c *consumer, queue string) {
	w.t.Helper()
	for w.left(queue) > 0 {
		require.NoError(w.t, c.batch(w.t.Context()))
	}
}

func TestARepeatOfPgrelayHasNoSecondEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.Start()
	w.Exec(`INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('booking.confirmed', $1)`, booking)
	w.Arrive(standard, 1)
	w.Eventually("0", `SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NULL`)
	w.Done("republish", "--table", "pgrelay.outbox_events", "--id", "1")
	w.Arrive(standard, 2)
	require.NoError(t, d.Stop())
	w.drain(w.consumer(standard), standard)
	require.Equal(t, []string{"room-7 1"}, w.guests())
}

func TestAConsumerThatDiesBeforeItDeletesTheMessageRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{standard, fifo} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.send(queue, "one", "room-7", booking)
			w.SQS.SetFault(func(r sqstest.Request) sqstest.Fault { return sqstest.Fault{CutBefore: r.Action == "DeleteMessage"} })
			require.ErrorContains(t, w.consumer(queue).batch(t.Context()), "deleting the message of event one")
			require.Equal(t, []string{"room-7 1"}, w.guests(), "it is committed")
			w.SQS.SetFault(nil)
			w.SQS.Advance(visibility)
			w.drain(w.consumer(queue), queue)
			require.Equal(t, []string{"room-7 1"}, w.guests())
		})
	}
}

func TestAnEffectThatFailsIsTriedAgainWithTheMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send(standard, "one", "", booking)
	c := w.consumer(standard)
	c.effect = func(ctx context.Context, tx pgx.Tx, e event) error {
		return errors.Join(countGuests(ctx, tx, e), errors.New("the disk is full"))
	}
	require.ErrorContains(t, c.batch(t.Context()), "the disk is full")
	require.Empty(t, w.guests())
	require.Empty(t, w.Strings(`SELECT event_id FROM processed`))
	w.SQS.Advance(visibility)
	w.drain(w.consumer(standard), standard)
	require.Equal(t, []string{"room-7 1"}, w.guests())
}

func TestOfTwoConsumersAtOneEventOneDoesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first error
		does  []string // who gave the event its effect in the end
	}{
		"the first commits":    {nil, []string{"first"}},
		"the first rolls back": {errors.New("the disk is full"), []string{"second"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first, second := w.consumer(standard), w.consumer(standard)
			began, end := make(chan struct{}), make(chan struct{})
			var does []string
			first.effect = func(context.Context, pgx.Tx, event) error {
				close(began)
				<-end
				if c.first == nil {
					does = append(does, "first")
				}
				return c.first
			}
			second.effect = func(context.Context, pgx.Tx, event) error {
				does = append(does, "second")
				return nil
			}
			firstEnded, secondEnded := make(chan error, 1), make(chan error, 1)
			go func() { firstEnded <- first.once(context.Background(), event{id: "one"}) }()
			<-began
			go func() { secondEnded <- second.once(context.Background(), event{id: "one"}) }()
			w.Eventually("1", `SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			close(end)
			require.ErrorIs(t, <-firstEnded, c.first)
			require.NoError(t, <-secondEnded)
			require.Equal(t, c.does, does)
		})
	}
}

func TestAFIFOQueueDropsTheSendersRepeatForFiveMinutesAndNoLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.consumer(fifo)
	w.send(fifo, "one", "room-7", booking)
	w.send(fifo, "one", "room-7", booking)
	require.Equal(t, 1, w.SQS.Count(fifo))
	w.drain(c, fifo)
	w.SQS.Advance(6 * time.Minute)
	w.send(fifo, "one", "room-7", booking)
	require.Equal(t, 2, w.SQS.Count(fifo), "the queue has forgotten it")
	w.drain(c, fifo)
	require.Equal(t, []string{"room-7 1"}, w.guests())
}

func TestAMessageThatFailsHoldsBackItsGroupAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, event := range []string{"a1", "a2", "b1", "a3", "b2"} {
		w.send(fifo, event, event[:1], booking)
	}
	c := w.consumer(fifo)
	var did []string
	fails := true
	c.effect = func(_ context.Context, _ pgx.Tx, e event) error {
		if e.id == "a2" && fails {
			return errors.New("not now")
		}
		did = append(did, e.id)
		return nil
	}
	require.ErrorContains(t, c.batch(t.Context()), "event a2: not now")
	require.Equal(t, []string{"a1", "b1", "b2"}, slices.Sorted(slices.Values(did)))
	fails = false
	w.SQS.Advance(visibility)
	w.drain(c, fifo)
	require.Equal(t, []string{"a2", "a3"}, did[3:])
}

func TestAMessageOfSomebodyElseIsLeftToTheRedrivePolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send(standard, "one", "", booking)
	_, err := w.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String(w.SQS.URL + "/000000000000/" + standard), MessageBody: aws.String("{}")})
	require.NoError(t, err)
	require.ErrorContains(t, w.consumer(standard).batch(t.Context()), "without event_id")
	require.Equal(t, []string{"room-7 1"}, w.guests())
	require.Equal(t, 1, w.left(standard))
}

func TestTheStatementsOfTheDocumentRun(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/consumers.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.Len(t, blocks, 4)
	w := newWorld(t)
	w.Exec(`DROP TABLE processed; ALTER TABLE rooms ADD price int, ADD version int`)
	for _, block := range blocks {
		_, err := w.Conn.PgConn().Exec(t.Context(), string(block[1])).ReadAll()
		require.NoError(t, err, "%s", block[1])
	}
	require.Equal(t, []string{"6cab1c1f-…"}, w.Strings(`SELECT event_id FROM processed`))
}
