package sqsfacts

import (
	"context"
	"fmt"
	"path"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
)

// Server is what the facts are held against.
type Server struct {
	Client *sqs.Client
	Prefix string        // of the names of queues
	Settle time.Duration // until a queue that was made can be used
	Poll   int32         // seconds until a queue that gives nothing is believed to be empty
}

// Run fails for each fact that doesn't hold. Those that a server is known to answer
// otherwise are in differs, by what it does instead, as patterns of names (see
// path.Match): of these it fails for each that holds, and for a pattern without any.
func (s Server) Run(t *testing.T, differs map[string][]string) {
	t.Helper()
	reasons := named(t, differs)
	for i, f := range All() {
		reason := reasons[f.Name]
		t.Run(fmt.Sprintf("%s [%s]", f.Name, f.Mark), func(t *testing.T) {
			t.Parallel()
			err := f.Holds(t.Context(), s.queue(t, fmt.Sprint(s.Prefix, i), f))
			if reason == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err, "it holds, and is listed as different: %s", reason)
		})
	}
}

// named gives reasons by the names of facts.
func named(t *testing.T, differs map[string][]string) map[string]string {
	t.Helper()
	reasons := map[string]string{}
	for reason, patterns := range differs {
		for _, pattern := range patterns {
			before := len(reasons)
			for _, f := range All() {
				matched, err := path.Match(pattern, f.Name)
				require.NoError(t, err, pattern)
				if matched {
					reasons[f.Name] = reason
				}
			}
			require.Greater(t, len(reasons), before, "no fact, or none that isn't listed already, has a name like %q", pattern)
		}
	}
	return reasons
}

// queue makes the queue of a fact until its test ends.
func (s Server) queue(t *testing.T, name string, f Fact) *Queue {
	t.Helper()
	if f.Attributes["FifoQueue"] != "" {
		name += ".fifo"
	}
	made, err := s.Client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: f.Attributes})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := s.Client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: made.QueueUrl})
		require.NoError(t, err)
	})
	select {
	case <-time.After(s.Settle):
	case <-t.Context().Done():
	}
	return &Queue{Client: s.Client, URL: *made.QueueUrl, Poll: s.Poll}
}
