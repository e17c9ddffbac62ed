package sqs

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/sqstest"
	"pgrelay/relay"
)

func openFault(t *testing.T, p *Publisher) *relay.Fault {
	t.Helper()
	var fault *relay.Fault
	require.ErrorAs(t, p.Open(t.Context()), &fault)
	return fault
}

func TestAQueueThatIsCreatedLaterIsFoundThen(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	p := unopened(t, destination(ts.URL, plainQueue))
	fault := openFault(t, p)
	require.Equal(t, "queue_missing", fault.Reason)
	require.Contains(t, fault.Detail, "queue bookings in eu-west-1: create the queue")

	ts.CreateQueue(plainQueue, nil)
	require.NoError(t, p.Open(t.Context()))
	ts.DeleteQueue(plainQueue)
	results, fault := publish(t, p, numbered(2))
	require.Equal(t, "queue_missing", fault.Reason)
	require.Equal(t, all(2, relay.OutcomeBack, nil), outcomes(results))

	ts.CreateQueue(plainQueue, nil)
	require.NoError(t, p.Open(t.Context()))
	_, fault = publish(t, p, numbered(2))
	require.Nil(t, fault)
}

func TestAQueueIsFoundByNameByARNAndByURL(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	url := ts.CreateQueue(plainQueue, nil)
	for queue, asked := range map[string]int{plainQueue: 1, "arn:aws:sqs:eu-west-1:000000000000:bookings": 1, url: 0} {
		before := ts.CallCount("GetQueueUrl")
		p := unopened(t, destination(ts.URL, queue))
		require.NoError(t, p.Open(t.Context()), queue)
		require.Equal(t, asked, ts.CallCount("GetQueueUrl")-before)
		_, fault := publish(t, p, numbered(1))
		require.Nil(t, fault)
	}
	require.Equal(t, 3, ts.Count(plainQueue))
}

func TestARoleThatMayOnlySendIsGoodEnough(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	ts.CreateQueue(plainQueue, map[string]string{"MaximumMessageSize": "1024"})
	ts.SetFault(func(r sqstest.Request) sqstest.Fault {
		if r.Action == "GetQueueAttributes" {
			return sqstest.Fault{Code: "AccessDenied"}
		}
		return sqstest.Fault{}
	})
	var log bytes.Buffer
	o := testKeys
	o.Log = zerolog.New(&log)
	p, err := New(t.Context(), destination(ts.URL, plainQueue), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	require.NoError(t, p.Open(t.Context()))
	require.Contains(t, log.String(), "GetQueueAttributes is not allowed")
	require.NoError(t, p.Check(&relay.Message{Body: strings.Repeat("x", maxBytes)}))
	_, fault := publish(t, p, numbered(1))
	require.Nil(t, fault)
}

func TestOpenTellsWhatToDo(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	ts.CreateQueue(plainQueue, nil)
	p := unopened(t, destination(ts.URL, plainQueue))
	for code, want := range map[string][2]string{
		"AccessDenied":          {"access_denied", "allow sqs:SendMessage, sqs:GetQueueUrl"},
		"InvalidClientTokenId":  {"credentials", "check the access key"},
		"ExpiredToken":          {"credentials_expired", "have run out or this host's clock is wrong"},
		"RequestThrottled":      {"throttled", "slower pace"},
		"InvalidParameterValue": {"refused", "check `queue`"},
		"NeverHeardOf":          {"refused", "(HTTP 400 NeverHeardOf)"},
	} {
		ts.SetFault(func(sqstest.Request) sqstest.Fault { return sqstest.Fault{Code: code} })
		fault := openFault(t, p)
		require.Equal(t, want[0], fault.Reason)
		require.Contains(t, fault.Detail, want[1])
		require.Equal(t, code == "RequestThrottled", fault.Throttled)
	}
}

func TestAQueueOfTheWrongTypeIsRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		answer := `{"QueueUrl":"http://localhost/0/bookings"}`
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetQueueAttributes") {
			answer = `{"Attributes":{"FifoQueue":"true","MaximumMessageSize":"262144"}}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(srv.Close)
	require.Equal(t, "wrong_type", openFault(t, unopened(t, destination(srv.URL, plainQueue))).Reason)
	p := unopened(t, destination(srv.URL, fifoQueue))
	require.NoError(t, p.Open(t.Context()))
	require.True(t, p.Ordered())
	require.Equal(t, 262144, p.queue.Load().maxBytes)
}

func TestOpenEndsWithItsContextAndWithItsDeadline(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	ts.CreateQueue(plainQueue, nil)
	ts.SetFault(func(sqstest.Request) sqstest.Fault { return sqstest.Fault{Delay: time.Hour} })
	d := destination(ts.URL, plainQueue)
	reason := ""
	for d.Timeout = config.Duration(100 * time.Millisecond); len(ts.Calls()) == 0; d.Timeout *= 2 { // until it has a connection in time
		reason = openFault(t, unopened(t, d)).Reason
	}
	require.Equal(t, "timeout", reason)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var fault *relay.Fault
	require.ErrorAs(t, unopened(t, d).Open(ctx), &fault)
	require.Equal(t, "not_sent", fault.Reason)
}
