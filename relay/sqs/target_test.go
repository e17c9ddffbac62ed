package sqs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

func TestTheQueueSaysWhereItIs(t *testing.T) {
	t.Parallel()
	const vpce = "https://vpce-0a1b-2c3d.sqs.eu-west-1.vpce.amazonaws.com"
	for _, c := range []struct {
		queue, region, endpoint string
		want                    target
	}{
		{"bookings", "", "", target{name: "bookings"}},
		{"bookings.fifo", "eu-west-1", "http://localhost:9324/", target{name: "bookings.fifo", region: "eu-west-1", endpoint: "http://localhost:9324"}},
		{"arn:aws:sqs:eu-west-1:123456789012:bookings", "", "", target{name: "bookings", account: "123456789012", region: "eu-west-1"}},
		{"arn:aws-cn:sqs:cn-north-1:123456789012:q.fifo", "cn-north-1", "", target{name: "q.fifo", account: "123456789012", region: "cn-north-1"}},
		{"arn:aws:sqs:us-east-1:000000000000:q", "", "http://localhost:4566", target{name: "q", account: "000000000000", region: "us-east-1", endpoint: "http://localhost:4566"}},
		{"https://sqs.eu-west-1.amazonaws.com/123456789012/q", "", "", target{name: "q", region: "eu-west-1", url: "https://sqs.eu-west-1.amazonaws.com/123456789012/q"}},
		{"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/q", "", "", target{name: "q", region: "cn-north-1", url: "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/q"}},
		{"https://eu-west-1.queue.amazonaws.com/123456789012/q", "", "", target{name: "q", region: "eu-west-1", url: "https://eu-west-1.queue.amazonaws.com/123456789012/q"}},
		{"https://queue.amazonaws.com/123456789012/q", "", "", target{name: "q", region: "us-east-1", url: "https://queue.amazonaws.com/123456789012/q"}},
		{"https://sqs-fips.us-gov-west-1.amazonaws.com/1/q", "", "", target{name: "q", region: "us-gov-west-1", endpoint: "https://sqs-fips.us-gov-west-1.amazonaws.com", url: "https://sqs-fips.us-gov-west-1.amazonaws.com/1/q"}},
		{vpce + "/123456789012/q", "", "", target{name: "q", region: "eu-west-1", endpoint: vpce, url: vpce + "/123456789012/q"}},
		{"https://sqs.eu-west-1.amazonaws.com/123456789012/q", "eu-west-1", vpce, target{name: "q", region: "eu-west-1", endpoint: vpce, url: "https://sqs.eu-west-1.amazonaws.com/123456789012/q"}},
		{"q", "", vpce, target{name: "q", region: "eu-west-1", endpoint: vpce}},
		{"http://localhost:9324/000000000000/q.fifo", "eu-west-1", "", target{name: "q.fifo", region: "eu-west-1", endpoint: "http://localhost:9324", url: "http://localhost:9324/000000000000/q.fifo"}},
		{"http://localhost:9324/000000000000/q", "eu-west-1", "http://localhost:9324", target{name: "q", region: "eu-west-1", endpoint: "http://localhost:9324", url: "http://localhost:9324/000000000000/q"}},
	} {
		got, err := parseTarget(config.Destination{Queue: c.queue, Region: c.region, Endpoint: c.endpoint})
		require.NoError(t, err, c.queue)
		require.Equal(t, c.want, got, c.queue)
	}
}

func TestContradictionsAreRefusedByTheKeyThatHoldsThem(t *testing.T) {
	t.Parallel()
	const awsURL = "https://sqs.eu-west-1.amazonaws.com/123456789012/q"
	for _, c := range []struct{ queue, region, endpoint, want string }{
		{"", "", "", "queue: is missing"},
		{"two words", "", "", "queue: \"two words\" is not the name of a queue"},
		{"q.fifo.fifo", "", "", "queue: "},
		{"arn:aws:sns:eu-west-1:123456789012:topic", "", "", "queue: is not the ARN of a queue"},
		{"https://user:hunter2@sqs.eu-west-1.amazonaws.com/1/q", "", "", "queue: must not hold a user"},
		{"ftp://host/q", "", "", "queue: is not an http or https URL"},
		{awsURL + "?Action=SendMessage", "", "", "queue: must not have a query"},
		{"http://localhost:9324/", "", "", "queue: \"\" is not the name"},
		{awsURL, "us-east-1", "", "region: us-east-1 contradicts queue, which is in eu-west-1"},
		{"arn:aws:sqs:eu-west-1:123456789012:q", "us-east-1", "", "region: us-east-1 contradicts queue"},
		{awsURL, "", "http://localhost:9324", "endpoint: http://localhost:9324 contradicts queue"},
		{awsURL, "", "https://sqs.us-east-1.amazonaws.com", "endpoint: https://sqs.us-east-1.amazonaws.com is in us-east-1 and the queue in eu-west-1"},
		{"q", "eu-west-1", "https://sqs.us-east-1.amazonaws.com", "endpoint: "},
		{"http://localhost:9324/0/q", "", "http://localhost:4566", "endpoint: http://localhost:4566 contradicts queue, whose URL is at http://localhost:9324"},
		{"q", "", "localhost:9324", "endpoint: is not an http or https URL"},
		{"q", "", "http://user:hunter2@localhost", "endpoint: must not hold a user"},
	} {
		_, err := parseTarget(config.Destination{Queue: c.queue, Region: c.region, Endpoint: c.endpoint})
		require.ErrorContains(t, err, c.want, "%+v", c)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func FuzzParsingAQueueNeverAcceptsAForeignName(f *testing.F) {
	for _, s := range []string{"q", "q.fifo", "arn:aws:sqs:eu-west-1:1:q", "https://sqs.eu-west-1.amazonaws.com/1/q", "http://[::1]:1/q", "://", "arn:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseQueue(s)
		if err == nil {
			require.Regexp(t, queueName, got.name)
		}
	})
}
