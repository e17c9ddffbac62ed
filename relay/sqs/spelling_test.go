package sqs

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
	"pgrelay/relay"
)

// whose is who is at fault for a request that was refused.
type whose string

const (
	theMessages    whose = "a message's: found by sending each alone, and dead"
	theRequests    whose = "the request's: sent in parts, and no message is blamed"
	theDestination whose = "the destination's: paused, nothing is charged"
	thePace        whose = "the pace's: paused, nothing is charged"
)

// refusals are all codes that AWS is known to refuse a send with: the shape's name, which is the JSON protocol's __type, and the code of
// the query protocol, which stands in a header beside it.
var refusals = []struct {
	shape, code string
	whose       whose
	reason      string
}{
	{"InvalidMessageContents", "InvalidMessageContents", theMessages, "refused_message"},
	{"InvalidParameterValueException", "InvalidParameterValue", theMessages, "refused_message"},
	{"MissingRequiredParameterException", "MissingParameter", theMessages, "refused_message"},
	{"BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong", theMessages, "message_too_large"},
	{"TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", theRequests, "refused_request"},
	{"EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", theRequests, "refused_request"},
	{"BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", theRequests, "refused_request"},
	{"InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId", theRequests, "refused_request"},
	{"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", theDestination, "queue_missing"},
	{"InvalidAddress", "InvalidAddress", theDestination, "queue_missing"},
	{"AccessDeniedException", "AccessDenied", theDestination, "access_denied"},
	{"InvalidSecurity", "InvalidSecurity", theDestination, "access_denied"},
	{"InvalidClientTokenId", "InvalidClientTokenId", theDestination, "credentials"},
	{"SignatureDoesNotMatch", "SignatureDoesNotMatch", theDestination, "credentials"},
	{"ExpiredTokenException", "ExpiredToken", theDestination, "credentials_expired"},
	{"RequestExpired", "RequestExpired", theDestination, "credentials_expired"},
	{"UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", theDestination, "unsupported"},
	{"UnknownOperationException", "InvalidAction", theDestination, "unsupported"},
	{"KmsAccessDenied", "KMS.AccessDeniedException", theDestination, "kms"},
	{"KmsDisabled", "KMS.DisabledException", theDestination, "kms"},
	{"KmsNotFound", "KMS.NotFoundException", theDestination, "kms"},
	{"KmsOptInRequired", "KMS.OptInRequired", theDestination, "kms"},
	{"KmsInvalidState", "KMS.InvalidStateException", theDestination, "kms"},
	{"KmsInvalidKeyUsage", "KMS.InvalidKeyUsageException", theDestination, "kms"},
	{"RequestThrottled", "RequestThrottled", thePace, "throttled"},
	{"Throttling", "Throttling", thePace, "throttled"},
	{"ThrottlingException", "ThrottlingException", thePace, "throttled"},
	{"OverLimit", "OverLimit", thePace, "throttled"},
	{"KmsThrottled", "KMS.ThrottlingException", thePace, "throttled"},
	{"InternalFailure", "InternalFailure", theDestination, "server_error"},
	{"InternalError", "InternalError", theDestination, "server_error"},
	{"ServiceUnavailable", "ServiceUnavailable", theDestination, "server_error"},
	{"NeverHeardOf", "NeverHeardOf", theDestination, "refused"},
}

// answer is what a server says to a send, as bytes.
type answer struct{ header, body string }

// spelt are the ways in which one refusal may be written.
func spelt(shape, code string) map[string]answer {
	body := func(kind string) string { return fmt.Sprintf(`{"__type":%q,"message":"words of AWS"}`, kind) }
	return map[string]answer{
		"header and __type":        {code + ";Sender", body("com.amazonaws.sqs#" + shape)},
		"header, blamed on AWS":    {code + ";Receiver", body("com.amazonaws.sqs#" + shape)},
		"header alone":             {code + ";Sender", `{"message":"words of AWS"}`},
		"__type with a namespace":  {"", body("com.amazonaws.sqs#" + shape)},
		"__type of another module": {"", body("com.amazon.coral.service#" + shape)},
		"__type alone":             {"", body(shape)},
	}
}

func TestEveryRefusalIsSortedWhateverItsSpelling(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	ts.CreateQueue(plainQueue, nil)
	var says atomic.Pointer[answer]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := says.Load()
		if a == nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".SendMessageBatch") {
			ts.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		if a.header != "" {
			w.Header().Set("X-Amzn-Query-Error", a.header)
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, a.body) // the client's business
	}))
	t.Cleanup(server.Close)
	p := unopened(t, destination(server.URL, plainQueue))
	require.NoError(t, p.Open(t.Context()))
	for _, r := range refusals {
		for name, a := range spelt(r.shape, r.code) {
			says.Store(&a)
			results, fault := publish(t, p, numbered(2))
			name = r.shape + ", " + name
			want := relay.OutcomeBack
			if r.whose == theMessages {
				want = relay.OutcomeRejected
				require.Nil(t, fault, name)
				require.Equal(t, r.reason, results[0].Reason, name)
			} else {
				require.NotNil(t, fault, name)
				require.Equal(t, r.reason, fault.Reason, name)
				require.Equal(t, r.whose == thePace, fault.Throttled, name)
			}
			require.Equal(t, all(2, want, nil), outcomes(results), name)
		}
	}
	require.Empty(t, ts.Messages(plainQueue))
}
