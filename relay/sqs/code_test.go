package sqs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
	"pgrelay/relay"
)

// spellings of each code: the shape's name, the query protocol's, and with a namespace.
var spellings = map[string][]string{
	"queue_missing":       {"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "com.amazonaws.sqs#QueueDoesNotExist", "ResourceNotFoundException", "InvalidAddress"},
	"access_denied":       {"AccessDenied", "AccessDeniedException", "com.amazon.coral.service#AccessDeniedException", "InvalidSecurity"},
	"credentials":         {"InvalidClientTokenId", "SignatureDoesNotMatch", "UnrecognizedClientException", "IncompleteSignature"},
	"credentials_expired": {"ExpiredToken", "ExpiredTokenException", "RequestExpired"},
	"unsupported":         {"UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation"},
	"kms": {
		"KmsAccessDenied", "KMS.AccessDeniedException", "KmsDisabled", "KMS.DisabledException", "KmsNotFound", "KMS.NotFoundException", "KmsOptInRequired",
		"KMS.OptInRequired", "KmsInvalidState", "KMS.InvalidStateException", "KmsInvalidKeyUsage", "KMS.InvalidKeyUsageException",
	},
	"throttled": {"RequestThrottled", "Throttling", "ThrottlingException", "TooManyRequestsException", "KmsThrottled", "KMS.ThrottlingException", "OverLimit"},
}

func TestEveryCodeOfADestinationIsAFaultInEverySpelling(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	for reason, codes := range spellings {
		for _, code := range codes {
			ts.SetFault(onSend(sqstest.Fault{Code: code, Message: "words of AWS"}))
			results, fault := publish(t, p, numbered(2))
			require.NotNil(t, fault, code)
			require.Equal(t, reason, fault.Reason, code)
			require.Equal(t, reason == "throttled", fault.Throttled, code)
			require.Equal(t, all(2, relay.OutcomeBack, nil), outcomes(results), code)
		}
	}
	require.Empty(t, ts.Messages(plainQueue))
}

func TestEveryCodeOfADestinationInOneEntryLeavesTheOthersDelivered(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	for reason, codes := range spellings {
		for _, code := range codes {
			// The sender is blamed for all of them, even for throttling.
			ts.SetFault(onSend(sqstest.Fault{Entries: map[string]sqstest.EntryFault{"1": {Code: code, SenderFault: true}}}))
			results, fault := publish(t, p, numbered(3))
			require.NotNil(t, fault, code)
			require.Equal(t, reason, fault.Reason, code)
			require.Equal(t, all(3, relay.OutcomeDelivered, map[int]relay.Outcome{1: relay.OutcomeBack}), outcomes(results), code)
		}
	}
}

func TestOneEntryIsJudgedByCodeAndSenderFault(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{plainQueue, fifoQueue} {
		p, ts := start(t, queue)
		for _, c := range []struct {
			code   string
			sender bool
			want   relay.Outcome
		}{
			{"InvalidMessageContents", true, relay.OutcomeRejected},
			{"InvalidParameterValue", true, relay.OutcomeRejected},
			{"MissingParameter", true, relay.OutcomeRejected},
			{"InvalidParameterValue", false, relay.OutcomeRetry},
			{"InternalError", false, relay.OutcomeRetry},
			{"InternalError", true, relay.OutcomeRetry},
			{"ServiceUnavailable", false, relay.OutcomeRetry},
			{"SomethingNew", true, relay.OutcomeRetry},
			{"", false, relay.OutcomeDelivered},
		} {
			ts.Advance(pastDedup) // past the deduplication window
			ts.SetFault(onSend(sqstest.Fault{Entries: map[string]sqstest.EntryFault{
				"1": {Code: c.code, SenderFault: c.sender, Message: "Value body-b for parameter MessageBody is invalid."},
			}}))
			results, fault := publish(t, p, numbered(3))
			require.Nil(t, fault, c.code)
			require.Equal(t, all(3, relay.OutcomeDelivered, map[int]relay.Outcome{1: c.want}), outcomes(results), c.code)
			require.NotContains(t, results[1].Detail, "body-b")
			if c.want == relay.OutcomeRejected {
				require.Contains(t, results[1].Detail, "its MessageBody ("+c.code+")")
			}
		}
	}
}

func TestStatusesWithoutACode(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	for status, reason := range map[int]string{
		500: "server_error", 502: "server_error", 503: "server_error", 504: "server_error", 429: "throttled", 403: "refused", 404: "refused", 418: "refused",
	} {
		ts.SetFault(onSend(sqstest.Fault{Status: status}))
		results, fault := publish(t, p, numbered(2))
		require.NotNil(t, fault, status)
		require.Equal(t, reason, fault.Reason, status)
		require.Equal(t, all(2, relay.OutcomeBack, nil), outcomes(results), status)
	}
}

func TestCodesUnderAServerStatus(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	for _, code := range []string{"InternalFailure", "ServiceUnavailable", "NeverHeardOf"} {
		ts.SetFault(onSend(sqstest.Fault{Status: 500, Code: code}))
		_, fault := publish(t, p, numbered(2))
		require.NotNil(t, fault, code)
		require.Equal(t, "server_error", fault.Reason, code)
		require.Contains(t, fault.Detail, code)
	}
}
