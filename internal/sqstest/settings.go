package sqstest

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

const (
	maxMessageSize = 1 << 20 // bytes, of a message and of a batch in sum
	maxDelay       = 900     // seconds
	maxVisibility  = 43_200  // seconds
	maxWait        = 20      // seconds
)

// settings are a queue's attributes as its actions use them.
type settings struct {
	fifo, contentDedup, dedupByGroup   bool
	maxSize                            int
	delay, retention, visibility, wait time.Duration
}

func parseSettings(attrs map[string]string) settings {
	number := func(name string) int {
		n, _ := strconv.Atoi(attrs[name]) // checked when it was set
		return n
	}
	seconds := func(name string) time.Duration { return time.Duration(number(name)) * time.Second }
	return settings{
		fifo:         attrs["FifoQueue"] == "true",
		contentDedup: attrs["ContentBasedDeduplication"] == "true",
		dedupByGroup: attrs["DeduplicationScope"] == "messageGroup",
		maxSize:      number("MaximumMessageSize"),
		delay:        seconds("DelaySeconds"),
		retention:    seconds("MessageRetentionPeriod"),
		visibility:   seconds("VisibilityTimeout"),
		wait:         seconds("ReceiveMessageWaitTimeSeconds"),
	}
}

// settable are the attributes that a user may set, with the check of their values.
var settable = map[string]func(value string) bool{
	"DelaySeconds":                  between(0, maxDelay),
	"MaximumMessageSize":            between(1024, maxMessageSize),
	"MessageRetentionPeriod":        between(60, 1_209_600),
	"VisibilityTimeout":             between(0, maxVisibility),
	"ReceiveMessageWaitTimeSeconds": between(0, maxWait),
	"FifoQueue":                     oneOf("true"),
	"ContentBasedDeduplication":     oneOf("true", "false"),
	"DeduplicationScope":            oneOf("queue", "messageGroup"),
	"FifoThroughputLimit":           oneOf("perQueue", "perMessageGroupId"),
	"SqsManagedSseEnabled":          oneOf("true", "false"),
	"KmsDataKeyReusePeriodSeconds":  between(60, 86_400),
	"KmsMasterKeyId":                anything,
	"Policy":                        anything,
	"RedrivePolicy":                 anything,
	"RedriveAllowPolicy":            anything,
}

var (
	fifoOnly = []string{"FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}
	readOnly = []string{
		"QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", "ApproximateNumberOfMessages",
		"ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
	}
)

func anything(string) bool { return true }

func between(low, high int) func(string) bool {
	return func(value string) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n >= low && n <= high
	}
}

func oneOf(values ...string) func(string) bool {
	return func(value string) bool { return slices.Contains(values, value) }
}

func defaultAttributes(fifo bool) map[string]string {
	attrs := map[string]string{
		"DelaySeconds": "0", "MaximumMessageSize": strconv.Itoa(maxMessageSize), "MessageRetentionPeriod": "345600",
		"VisibilityTimeout": "30", "ReceiveMessageWaitTimeSeconds": "0", "SqsManagedSseEnabled": "true",
	}
	if fifo {
		maps.Copy(attrs, map[string]string{
			"FifoQueue": "true", "ContentBasedDeduplication": "false",
			"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue",
		})
	}
	return attrs
}

// checkSettable checks attributes that a user sets on a queue.
func checkSettable(attrs map[string]string, fifo bool) error {
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		valid, known := settable[name]
		if !known || !fifo && slices.Contains(fifoOnly, name) {
			return refuse("InvalidAttributeName", "Unknown Attribute %s.", name)
		}
		if !valid(attrs[name]) {
			return refuse("InvalidAttributeValue", "Invalid value for the parameter %s.", name)
		}
	}
	return nil
}

// checkTogether checks what attributes ask of each other.
func checkTogether(attrs map[string]string) error {
	if attrs["FifoThroughputLimit"] == "perMessageGroupId" && attrs["DeduplicationScope"] != "messageGroup" {
		return refuse("InvalidAttributeValue", "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup.")
	}
	return nil
}
