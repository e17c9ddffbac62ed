package sqstest_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.uber.org/goleak"

	"pgrelay/internal/sqstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the real SDK without retries, pointed at a server.
func client(t testing.TB, url string, change ...func(*sqs.Options)) *sqs.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(url), Region: "us-east-1", RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		HTTPClient:  &http.Client{Transport: transport},
	}, change...)
}

// bench is a server with a queue of each sort, and a client.
type bench struct {
	*sqstest.TestServer
	sqs            *sqs.Client
	standard, fifo string // URLs
}

func newBench(t testing.TB, opts ...sqstest.Option) *bench {
	t.Helper()
	ts := sqstest.Start(t, opts...)
	return &bench{
		TestServer: ts, sqs: client(t, ts.URL),
		standard: ts.CreateQueue("orders", nil), fifo: ts.CreateQueue("orders.fifo", nil),
	}
}

// receive returns the bodies of up to ten messages.
func (b *bench) receive(ctx context.Context, t testing.TB, url string, change ...func(*sqs.ReceiveMessageInput)) []string {
	t.Helper()
	in := &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10}
	for _, c := range change {
		c(in)
	}
	out, err := b.sqs.ReceiveMessage(ctx, in)
	if err != nil {
		t.Error(err) // not Fatal: long polls run in goroutines of their own
		return nil
	}
	var bodies []string
	for _, m := range out.Messages {
		bodies = append(bodies, *m.Body)
	}
	return bodies
}
