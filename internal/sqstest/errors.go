package sqstest

import (
	"fmt"
	"net/http"
	"strings"
)

// apiError is an error answer, for a whole request or for one entry of a batch.
type apiError struct {
	status  int
	shape   string // what __type ends in: the name in the SDK's model
	code    string // what x-amzn-query-error starts with: the name of the older query protocol
	message string
}

// Error implements error.
func (e *apiError) Error() string { return e.code + ": " + e.message }

// refuse makes the error of a shape, with the status and code that go with it.
func refuse(shape, format string, args ...any) *apiError {
	return &apiError{
		status: statusOf(shape), shape: shape, code: codeOf(shape),
		message: fmt.Sprintf(format, args...),
	}
}

func invalidParameter(format string, args ...any) *apiError {
	return refuse("InvalidParameterValueException", format, args...)
}

func missingParameter(name string) *apiError {
	return refuse("MissingRequiredParameterException", "The request must contain the parameter %s.", name)
}

// queryCodes are the shapes whose older spelling differs. Those that end in Exception are
// not in the SDK's model.
var queryCodes = map[string]string{
	"BatchEntryIdsNotDistinct":          "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
	"BatchRequestTooLong":               "AWS.SimpleQueueService.BatchRequestTooLong",
	"EmptyBatchRequest":                 "AWS.SimpleQueueService.EmptyBatchRequest",
	"InvalidBatchEntryId":               "AWS.SimpleQueueService.InvalidBatchEntryId",
	"TooManyEntriesInBatchRequest":      "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
	"UnsupportedOperation":              "AWS.SimpleQueueService.UnsupportedOperation",
	"MessageNotInflight":                "AWS.SimpleQueueService.MessageNotInflight",
	"PurgeQueueInProgress":              "AWS.SimpleQueueService.PurgeQueueInProgress",
	"QueueDeletedRecently":              "AWS.SimpleQueueService.QueueDeletedRecently",
	"QueueDoesNotExist":                 "AWS.SimpleQueueService.NonExistentQueue",
	"QueueNameExists":                   "QueueAlreadyExists",
	"KmsAccessDenied":                   "KMS.AccessDeniedException",
	"KmsDisabled":                       "KMS.DisabledException",
	"KmsInvalidKeyUsage":                "KMS.InvalidKeyUsageException",
	"KmsInvalidState":                   "KMS.InvalidStateException",
	"KmsNotFound":                       "KMS.NotFoundException",
	"KmsOptInRequired":                  "KMS.OptInRequired",
	"KmsThrottled":                      "KMS.ThrottlingException",
	"AccessDeniedException":             "AccessDenied",
	"InvalidParameterValueException":    "InvalidParameterValue",
	"MissingRequiredParameterException": "MissingParameter",
	"SerializationException":            "MalformedInput",
	"UnknownOperationException":         "InvalidAction",
}

func codeOf(shape string) string {
	if code, ok := queryCodes[shape]; ok {
		return code
	}
	return shape
}

// shapeOf finds the shape that a code belongs to; a shape is its own.
func shapeOf(code string) string {
	for shape, c := range queryCodes {
		if c == code {
			return shape
		}
	}
	return code
}

func statusOf(shape string) int {
	switch shape {
	case "OverLimit", "PurgeQueueInProgress", "RequestThrottled", "InvalidSecurity", "KmsOptInRequired",
		"AccessDeniedException", "InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken":
		return http.StatusForbidden
	case "ResourceNotFoundException", "ReceiptHandleIsInvalid", "InvalidAddress":
		return http.StatusNotFound
	case "InternalFailure", "InternalError":
		return http.StatusInternalServerError
	case "ServiceUnavailable":
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// typeName is the shape with the namespace that AWS gives it. The namespace of what the
// model doesn't hold is unverified; the SDK looks behind the # only.
func (e *apiError) typeName() string {
	if strings.Contains(e.shape, "#") {
		return e.shape
	}
	if strings.HasSuffix(e.shape, "Exception") && e.shape != "ResourceNotFoundException" {
		return "com.amazon.coral.service#" + e.shape
	}
	return "com.amazonaws.sqs#" + e.shape
}

// fault says whose it is, as AWS spells it.
func (e *apiError) fault() string {
	if e.status >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}
