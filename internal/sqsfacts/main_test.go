package sqsfacts_test

import (
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pgrelay/internal/sqsfacts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the SDK without retries, pointed at a server on loopback.
func client(url string, through http.RoundTripper) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &url, Region: "us-east-1", RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		HTTPClient:  &http.Client{Transport: through},
	})
}

// transport keeps connections until the test ends.
func transport(t *testing.T) *http.Transport {
	t.Helper()
	keeping := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16}
	t.Cleanup(keeping.CloseIdleConnections)
	return keeping
}

func TestFactsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range sqsfacts.All() {
		require.False(t, seen[f.Name], f.Name)
		seen[f.Name] = true
		require.Contains(t, []sqsfacts.Mark{"R", "D", "S", "U"}, f.Mark, f.Name)
	}
}
