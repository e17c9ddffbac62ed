package sqs

import "strings"

// class is whose fault an error code is.
type class uint8

const (
	// classOther: a code that nobody knows.
	classOther class = iota
	// classMessage: the message's, once it stands alone.
	classMessage
	// classTooLong: of many messages nobody's, of one its own.
	classTooLong
	// classBatch: the request's; to be split, and no message is ever blamed.
	classBatch
	// classThrottled: the pace.
	classThrottled
	// classServer: SQS's, for now.
	classServer
	// classDestination: the queue's, its keys' or its configuration's.
	classDestination
)

// verdict is what a code says: whose fault it is, the reason under which it is
// counted and what a person can do.
type verdict struct {
	class  class
	reason string
	advice string
}

const (
	adviceKeys    = "check the access key, its secret and the region"
	adviceExpired = "the credentials have run out or this host's clock is wrong"
	adviceAllow   = "allow sqs:SendMessage, sqs:GetQueueUrl and sqs:GetQueueAttributes on the queue (GetQueueUrl is not needed where `queue` is a URL)"
	adviceKMS     = "check the queue's KMS key and allow kms:GenerateDataKey and kms:Decrypt on it"
)

var (
	rejected    = verdict{classMessage, "refused_message", ""}
	batchFault  = verdict{classBatch, "refused_request", "SQS takes no batch from us; this is a defect or no SQS"}
	throttled   = verdict{classThrottled, "throttled", "SQS asks for a slower pace"}
	serverFault = verdict{classServer, "server_error", "SQS has a problem of its own"}
	badKeys     = verdict{classDestination, "credentials", adviceKeys}
	expired     = verdict{classDestination, "credentials_expired", adviceExpired}
	denied      = verdict{classDestination, "access_denied", adviceAllow}
	missing     = verdict{classDestination, "queue_missing", "create the queue, or mend its name, account or region"}
	kms         = verdict{classDestination, "kms", adviceKMS}
	unsupported = verdict{classDestination, "unsupported", "the queue or the endpoint does not allow this request"}
	refused     = verdict{classDestination, "refused", "SQS refused the request for a reason that pgrelay does not know"}
)

// verdicts has one entry per code as canonical writes it.
var verdicts = map[string]verdict{
	"InvalidMessageContents":   rejected,
	"InvalidParameterValue":    rejected,
	"MissingParameter":         rejected,
	"MissingRequiredParameter": rejected,

	"BatchRequestTooLong":          {classTooLong, "message_too_large", ""},
	"TooManyEntriesInBatchRequest": batchFault,
	"EmptyBatchRequest":            batchFault,
	"BatchEntryIdsNotDistinct":     batchFault,
	"InvalidBatchEntryId":          batchFault,

	"RequestThrottled":       throttled,
	"Throttling":             throttled,
	"Throttled":              throttled,
	"TooManyRequests":        throttled,
	"RequestLimitExceeded":   throttled,
	"BandwidthLimitExceeded": throttled,
	"SlowDown":               throttled,
	"OverLimit":              throttled,
	"KmsThrottled":           throttled,
	"KmsThrottling":          throttled,

	"InternalFailure":     serverFault,
	"InternalError":       serverFault,
	"InternalServerError": serverFault,
	"ServiceUnavailable":  serverFault,

	"InvalidClientTokenId":       badKeys,
	"UnrecognizedClient":         badKeys,
	"InvalidAccessKeyId":         badKeys,
	"SignatureDoesNotMatch":      badKeys,
	"InvalidSignature":           badKeys,
	"IncompleteSignature":        badKeys,
	"MissingAuthenticationToken": badKeys,
	"ExpiredToken":               expired,
	"RequestExpired":             expired,
	"RequestTimeTooSkewed":       expired,

	"AccessDenied":         denied,
	"AuthorizationError":   denied,
	"OptInRequired":        denied,
	"InvalidSecurity":      {classDestination, "access_denied", "the queue's policy asks for a secure connection: use https"},
	"QueueDoesNotExist":    missing,
	"NonExistentQueue":     missing,
	"ResourceNotFound":     missing,
	"InvalidAddress":       {classDestination, "queue_missing", "the endpoint does not know the queue's URL"},
	"UnsupportedOperation": unsupported,
	"InvalidAction":        unsupported,
	"UnknownOperation":     unsupported,
	"KmsAccessDenied":      kms,
	"KmsDisabled":          kms,
	"KmsInvalidState":      kms,
	"KmsInvalidKeyUsage":   kms,
	"KmsNotFound":          kms,
	"KmsOptInRequired":     kms,
}

// judge looks a code up in all its spellings.
func judge(code string) verdict { return verdicts[canonical(code)] }

// canonical reduces the spellings of one code to one: the shape's name
// (com.amazonaws.sqs#QueueDoesNotExist), the query protocol's
// (AWS.SimpleQueueService.NonExistentQueue, KMS.DisabledException), with and without
// Exception.
func canonical(code string) string {
	if i := strings.LastIndexByte(code, '#'); i >= 0 {
		code = code[i+1:]
	}
	code = strings.TrimPrefix(code, "AWS.SimpleQueueService.")
	if rest, ok := strings.CutPrefix(code, "KMS."); ok {
		code = "Kms" + rest
	}
	return strings.TrimSuffix(code, "Exception")
}
