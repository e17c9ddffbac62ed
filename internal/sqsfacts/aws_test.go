//go:build aws

package sqsfacts_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqsfacts"
)

// TestAWSKnowsTheSameFacts runs where the AWS SDK's usual environment points: see
// docs/testing.md before you do.
func TestAWSKnowsTheSameFacts(t *testing.T) {
	t.Parallel()
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithHTTPClient(&http.Client{Transport: transport(t)}))
	require.NoError(t, err)
	require.NotEmpty(t, cfg.Region, "set AWS_REGION")
	sqsfacts.Server{
		Client: sqs.NewFromConfig(cfg), Prefix: "pgrelay-facts-" + strings.ToLower(rand.Text()[:8]) + "-",
		Settle: time.Second, Poll: 2,
	}.Run(t, nil)
}
