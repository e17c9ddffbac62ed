package sqsfacts

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

var letters = strings.Repeat("a", 128)

// The messages, by the queues that they are for.
var (
	onStandard = []message{
		{name: "group marks a tenant", mark: Recorded, in: sqs.SendMessageInput{MessageGroupId: aws.String("tenant")}},
		{name: "group of 128", mark: Recorded, in: sqs.SendMessageInput{MessageGroupId: &letters}},
		{name: "empty group", mark: Recorded, in: sqs.SendMessageInput{MessageGroupId: aws.String("")}, refused: &badParameter},
		{name: "group of 129", mark: Recorded, in: sqs.SendMessageInput{MessageGroupId: aws.String(letters + "a")}, refused: &badParameter},
		{name: "group with a space", mark: Recorded, in: sqs.SendMessageInput{MessageGroupId: aws.String("a b")}, refused: &badParameter},
		{name: "deduplication id", mark: Documented, in: sqs.SendMessageInput{MessageDeduplicationId: aws.String("d")}, refused: &badParameter},
		{name: "delay of 900", mark: Documented, in: sqs.SendMessageInput{DelaySeconds: 900}},
		{name: "delay of 901", mark: Documented, in: sqs.SendMessageInput{DelaySeconds: 901}, refused: &badParameter},
		{name: "negative delay", mark: Documented, in: sqs.SendMessageInput{DelaySeconds: -1}, refused: &badParameter},
	}
	onFIFO = []message{
		{name: "group of all punctuation", mark: Documented, in: sqs.SendMessageInput{MessageGroupId: aws.String("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")}},
		{name: "group of 129", mark: Documented, in: sqs.SendMessageInput{MessageGroupId: aws.String(letters + "a")}, refused: &badParameter},
		{name: "group with a space", mark: Documented, in: sqs.SendMessageInput{MessageGroupId: aws.String("a b")}, refused: &badParameter},
		{name: "group outside ASCII", mark: Documented, in: sqs.SendMessageInput{MessageGroupId: aws.String("ä")}, refused: &badParameter},
		{name: "group with a control character", mark: Documented, in: sqs.SendMessageInput{MessageGroupId: aws.String("a\x7f")}, refused: &badParameter},
		{name: "deduplication id of 128", mark: Documented, in: sqs.SendMessageInput{MessageDeduplicationId: &letters}},
		{name: "deduplication id of 129", mark: Documented, in: sqs.SendMessageInput{MessageDeduplicationId: aws.String(letters + "a")}, refused: &badParameter},
		{name: "deduplication id with a space", mark: Documented, in: sqs.SendMessageInput{MessageDeduplicationId: aws.String("a b")}, refused: &badParameter},
		{name: "delay of its own", mark: Recorded, in: sqs.SendMessageInput{DelaySeconds: 1}, refused: &badParameter},
	}
	everywhere = []message{
		{name: "plain", mark: Documented},
		{name: "tab, newline, return", mark: Documented, in: sqs.SendMessageInput{MessageBody: aws.String("\t\n\r")}},
		{name: "edges of the allowed ranges", mark: Documented, in: sqs.SendMessageInput{MessageBody: aws.String(" \uD7FF\uE000\uFFFD")}},
		{name: "beyond the first plane", mark: Documented, in: sqs.SendMessageInput{MessageBody: aws.String("\U00010000😀\U0010FFFF")}},
		{name: "null byte", mark: Documented, in: sqs.SendMessageInput{MessageBody: aws.String("a\x00")}, refused: &badContents},
		{name: "control character", mark: Recorded, in: sqs.SendMessageInput{MessageBody: aws.String("a\x1f")}, refused: &badContents},
		{name: "U+FFFE", mark: Documented, in: sqs.SendMessageInput{MessageBody: aws.String("\uFFFE")}, refused: &badContents},
		{name: "U+FFFF", mark: Documented, in: sqs.SendMessageInput{MessageBody: aws.String("\uFFFF")}, refused: &badContents},
		{name: "invalid UTF-8 arrives as U+FFFD", mark: Seen, in: sqs.SendMessageInput{MessageBody: aws.String("a\xff")}},

		{name: "10 attributes", mark: Documented, in: sqs.SendMessageInput{MessageAttributes: attributesOf(10)}},
		{name: "11 attributes", mark: Documented, batched: Unverified, in: sqs.SendMessageInput{MessageAttributes: attributesOf(11)}, refused: &badParameter},
		{name: "attribute name of 256", mark: Documented, in: withAttribute(letters+letters, text("x"))},
		{name: "attribute name of 257", mark: Documented, in: withAttribute(letters+letters+"a", text("x")), refused: &badParameter},
		{name: "attribute name of all characters", mark: Documented, in: withAttribute("aZ0_-.b", text("x"))},
		{name: "attribute name with a space", mark: Documented, in: withAttribute("a b", text("x")), refused: &badParameter},
		{name: "empty attribute name", mark: Documented, in: withAttribute("", text("x")), refused: &badParameter},
		{name: "attribute name AWS.", mark: Documented, in: withAttribute("AWS.x", text("x")), refused: &badParameter},
		{name: "attribute name aws.", mark: Documented, in: withAttribute("aws.x", text("x")), refused: &badParameter},
		{name: "attribute name AmaZon.", mark: Documented, in: withAttribute("AmaZon.x", text("x")), refused: &badParameter},
		{name: "attribute name awsome", mark: Documented, in: withAttribute("awsome", text("x"))},
		{name: "attribute name starting with a period", mark: Documented, in: withAttribute(".a", text("x")), refused: &badParameter},
		{name: "attribute name ending with a period", mark: Documented, in: withAttribute("a.", text("x")), refused: &badParameter},
		{name: "attribute name with two periods in a row", mark: Documented, in: withAttribute("a..b", text("x")), refused: &badParameter},
		{name: "empty String attribute", mark: Recorded, in: withAttribute("a", text("")), refused: &badParameter},
		{name: "empty Binary attribute", mark: Recorded, in: withAttribute("a", binary("")), refused: &badParameter},
		{name: "attribute with a control character", mark: Recorded, in: withAttribute("a", text("\x01")), refused: &badParameter},
		{name: "Binary attribute with any bytes", mark: Documented, in: withAttribute("a", binary("\x00\xff"))},
		{name: "labelled types", mark: Documented, in: sqs.SendMessageInput{MessageAttributes: attributes{
			"s": typed("String.json", "{}"), "n": typed("Number.int", "-1e3"),
		}}},
		{name: "unknown type", mark: Documented, in: withAttribute("a", typed("Text", "x")), refused: &badParameter},
		{name: "empty type", mark: Documented, in: withAttribute("a", typed("", "x")), refused: &badParameter},
		{name: "type of 256", mark: Documented, in: withAttribute("a", typed("String."+strings.Repeat("l", 249), "x"))},
		{name: "type of 257", mark: Documented, in: withAttribute("a", typed("String."+strings.Repeat("l", 250), "x")), refused: &badParameter},
		{name: "Number that is none", mark: Documented, in: withAttribute("a", typed("Number", "x")), refused: &badParameter},
		{name: "list values", mark: Documented, in: withAttribute("a", types.MessageAttributeValue{
			DataType: aws.String("String"), StringListValues: []string{"x"},
		}), refused: &badParameter},
		{name: "trace header", mark: Documented, in: withSystem("AWSTraceHeader", text("Root=1"))},
		{name: "another system attribute", mark: Documented, in: withSystem("SenderId", text("me")), refused: &badParameter},
	}
)

// text is a String attribute, typed one of another type, binary a Binary one.
func text(value string) types.MessageAttributeValue { return typed("String", value) }

func typed(kind, value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: &kind, StringValue: &value}
}

func binary(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: []byte(value)}
}

type attributes = map[string]types.MessageAttributeValue

func attributesOf(n int) attributes {
	m := attributes{}
	for i := range n {
		m[fmt.Sprintf("a%d", i)] = text("x")
	}
	return m
}

func withAttribute(name string, value types.MessageAttributeValue) sqs.SendMessageInput {
	return sqs.SendMessageInput{MessageAttributes: attributes{name: value}}
}

func withSystem(name string, v types.MessageAttributeValue) sqs.SendMessageInput {
	return sqs.SendMessageInput{MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
		name: {DataType: v.DataType, StringValue: v.StringValue},
	}}
}
