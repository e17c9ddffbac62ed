//go:build aws

package sqsfacts_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqsfacts"
)

// TestAWSKnowsTheSameFacts runs where the AWS SDK's usual environment points: see
// docs/testing.md before you do.
func TestAWSKnowsTheSameFacts(t *testing.T) {
	t.Parallel()
	cfg, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, cfg.Region, "set AWS_REGION")
	configured, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	require.True(t, ok, "%T", cfg.HTTPClient)
	through := configured.GetTransport() // a copy, which we can close
	through.MaxIdleConnsPerHost = 16
	t.Cleanup(through.CloseIdleConnections)
	cfg.HTTPClient = &http.Client{Transport: through}
	sqsfacts.Server{
		Client: sqs.NewFromConfig(cfg), Prefix: "pgrelay-facts-" + strings.ToLower(rand.Text()[:8]) + "-",
		Settle: time.Second, Poll: 2,
	}.Run(t, nil)
}
