package sqstest

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxEntries    = 10
	maxAttributes = 10
)

var (
	entryID   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	// fifoID is the rule of group and deduplication ids: visible ASCII.
	fifoID = regexp.MustCompile(`^[!-~]{1,128}$`)
	// attributeName is the documented rule. AWS was seen to take other letters as well.
	attributeName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)
	attributeType = regexp.MustCompile(`^(String|Number|Binary)(\..*)?$`)
	number        = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`)
)

// allowedText says whether all of a text's characters are ones that SQS takes.
func allowedText(text string) bool {
	for _, r := range text {
		switch {
		case r == '\t', r == '\n', r == '\r', r >= 0x20 && r <= 0xD7FF, r >= 0xE000 && r <= 0xFFFD, r >= 0x10000:
		default:
			return false
		}
	}
	return true
}

// checkEntries makes the checks that refuse a batch as a whole, of any batch action.
func checkEntries(action string, ids []string) error {
	if len(ids) == 0 {
		return refuse("EmptyBatchRequest", "There should be at least one %sRequestEntry in the request.", action)
	}
	if len(ids) > maxEntries {
		return refuse("TooManyEntriesInBatchRequest", "Maximum number of entries per request are %d. You have sent %d.", maxEntries, len(ids))
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if !entryID.MatchString(id) {
			return refuse("InvalidBatchEntryId",
				"A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		}
		if seen[id] {
			return refuse("BatchEntryIdsNotDistinct", "Id %s repeated.", id)
		}
		seen[id] = true
	}
	return nil
}

// check makes the checks of one message. In a batch they fail that entry alone; for an
// empty body and for attributes that is unverified.
func (o *outgoing) check(set settings) *apiError {
	switch {
	case o.MessageBody == "":
		return missingParameter("MessageBody")
	case !allowedText(o.MessageBody):
		return refuse("InvalidMessageContents", "Invalid characters found. Valid unicode characters are "+
			"#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	if err := checkAttributes(o.MessageAttributes); err != nil {
		return err
	}
	if err := checkSystemAttributes(o.MessageSystemAttributes); err != nil {
		return err
	}
	if o.size() > set.maxSize {
		return invalidParameter("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", set.maxSize)
	}
	if err := o.checkDelay(set); err != nil {
		return err
	}
	return o.checkIDs(set)
}

const notOfThisType = "Reason: The request include parameter that is not valid for this queue type."

func (o *outgoing) checkDelay(set settings) *apiError {
	switch {
	case o.DelaySeconds == nil:
		return nil
	case *o.DelaySeconds < 0 || *o.DelaySeconds > maxDelay:
		return invalidParameter("Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= %d.", *o.DelaySeconds, maxDelay)
	case set.fifo && *o.DelaySeconds > 0: // whether AWS takes a zero is unverified
		return invalidParameter("Value %d for parameter DelaySeconds is invalid. "+notOfThisType, *o.DelaySeconds)
	}
	return nil
}

// checkIDs checks what group and deduplication ids look like; missingID, that they are there.
func (o *outgoing) checkIDs(set settings) *apiError {
	if !set.fifo && o.MessageDeduplicationID != nil {
		return invalidParameter("Value %s for parameter MessageDeduplicationId is invalid. "+notOfThisType, *o.MessageDeduplicationID)
	}
	const reason = "Value %s for parameter %s is invalid. Reason: %[2]s can only include alphanumeric and punctuation characters. 1 to 128 in length."
	if id := o.MessageGroupID; id != nil && !fifoID.MatchString(*id) {
		return invalidParameter(reason, *id, "MessageGroupId")
	}
	if id := o.MessageDeduplicationID; id != nil && !fifoID.MatchString(*id) {
		return invalidParameter(reason, *id, "MessageDeduplicationId")
	}
	return nil
}

// missingID names what a message for a FIFO queue has to have and hasn't. In a batch that
// refuses the whole request.
func (o *outgoing) missingID(set settings) string {
	switch {
	case !set.fifo:
		return ""
	case o.MessageGroupID == nil:
		return "MessageGroupId"
	case o.MessageDeduplicationID == nil && !set.contentDedup:
		return "MessageDeduplicationId"
	}
	return ""
}

func checkAttributes(attributes map[string]attributeValue) *apiError {
	if len(attributes) > maxAttributes {
		return invalidParameter("Number of message attributes [%d] exceeds the allowed maximum [%d].", len(attributes), maxAttributes)
	}
	for name, v := range attributes {
		if err := checkAttributeName(name); err != nil {
			return err
		}
		if err := checkAttributeValue(name, v); err != nil {
			return err
		}
	}
	return nil
}

func checkAttributeName(name string) *apiError {
	lower := strings.ToLower(name)
	switch {
	case !attributeName.MatchString(name):
		return invalidParameter("Invalid attribute name parameter %q: names hold alphanumeric characters, underscores, hyphens and periods, up to 256.", name)
	case strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."):
		return invalidParameter("You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal use.")
	case strings.HasPrefix(name, "."), strings.HasSuffix(name, "."), strings.Contains(name, ".."):
		return invalidParameter("Invalid message attribute name %q: no period at either end, no two in a row.", name)
	}
	return nil
}

func checkAttributeValue(name string, v attributeValue) *apiError {
	switch {
	case len(v.StringListValues) > 0 || len(v.BinaryListValues) > 0:
		return invalidParameter("Message attribute list values in SendMessage operation are not supported.")
	case v.DataType == "":
		return invalidParameter("The message attribute '%s' must contain a non-empty message attribute type.", name)
	case !attributeType.MatchString(v.DataType) || utf8.RuneCountInString(v.DataType) > 256:
		return invalidParameter("The type of message (user) attribute '%s' is invalid. "+
			"You must use only the following supported type prefixes: Binary, Number, String.", name)
	case len(v.bytes()) == 0:
		kind, _, _ := strings.Cut(v.DataType, ".")
		return invalidParameter("The message (user) attribute '%s' must contain a non-empty value of type '%s'.", name, kind)
	case v.binary():
		return nil
	case !allowedText(*v.StringValue):
		return invalidParameter("Invalid binary character found in message attribute '%s'.", name)
	case strings.HasPrefix(v.DataType, "Number") && !number.MatchString(*v.StringValue):
		return invalidParameter("Can't cast the value of message (user) attribute '%s' to a number.", name)
	}
	return nil
}

// checkSystemAttributes knows the one system attribute that a sender may give.
func checkSystemAttributes(attributes map[string]attributeValue) *apiError {
	for name, v := range attributes {
		if name != traceHeader || v.DataType != "String" || deref(v.StringValue) == "" {
			return invalidParameter("Message system attribute name '%s' is invalid, or its value is not a string.", name)
		}
	}
	return nil
}
