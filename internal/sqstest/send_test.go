package sqstest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

const mebibyte = 1 << 20

var (
	badParameter = unmodelled("InvalidParameterValue")
	missing      = unmodelled("MissingParameter")
	badContents  = modelled[*types.InvalidMessageContents]("InvalidMessageContents")
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

// messageFact is one message that a queue takes or refuses. The mark says how the fact is
// known: R recorded, D documented, S seen with the SDK, U unverified, our choice.
type messageFact struct {
	name, mark string
	in         sqs.SendMessageInput // an empty MessageBody is "x", group and deduplication id of a FIFO queue are "g" and "d"
	refused    *refusal             // nil: taken
}

var (
	letters  = strings.Repeat("a", 128)
	standard = []messageFact{
		{name: "group marks a tenant", mark: "R", in: sqs.SendMessageInput{MessageGroupId: aws.String("tenant")}},
		{name: "group of 128", mark: "R", in: sqs.SendMessageInput{MessageGroupId: &letters}},
		{name: "empty group", mark: "R", in: sqs.SendMessageInput{MessageGroupId: aws.String("")}, refused: &badParameter},
		{name: "group of 129", mark: "R", in: sqs.SendMessageInput{MessageGroupId: aws.String(letters + "a")}, refused: &badParameter},
		{name: "group with a space", mark: "R", in: sqs.SendMessageInput{MessageGroupId: aws.String("a b")}, refused: &badParameter},
		{name: "deduplication id", mark: "D", in: sqs.SendMessageInput{MessageDeduplicationId: aws.String("d")}, refused: &badParameter},
		{name: "delay of 900", mark: "D", in: sqs.SendMessageInput{DelaySeconds: 900}},
		{name: "delay of 901", mark: "D", in: sqs.SendMessageInput{DelaySeconds: 901}, refused: &badParameter},
		{name: "negative delay", mark: "D", in: sqs.SendMessageInput{DelaySeconds: -1}, refused: &badParameter},
	}
	fifo = []messageFact{
		{name: "group of all punctuation", mark: "D", in: sqs.SendMessageInput{MessageGroupId: aws.String("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")}},
		{name: "group of 129", mark: "D", in: sqs.SendMessageInput{MessageGroupId: aws.String(letters + "a")}, refused: &badParameter},
		{name: "group with a space", mark: "D", in: sqs.SendMessageInput{MessageGroupId: aws.String("a b")}, refused: &badParameter},
		{name: "group outside ASCII", mark: "D", in: sqs.SendMessageInput{MessageGroupId: aws.String("ä")}, refused: &badParameter},
		{name: "group with a control character", mark: "D", in: sqs.SendMessageInput{MessageGroupId: aws.String("a\x7f")}, refused: &badParameter},
		{name: "deduplication id of 128", mark: "D", in: sqs.SendMessageInput{MessageDeduplicationId: &letters}},
		{name: "deduplication id of 129", mark: "D", in: sqs.SendMessageInput{MessageDeduplicationId: aws.String(letters + "a")}, refused: &badParameter},
		{name: "deduplication id with a space", mark: "D", in: sqs.SendMessageInput{MessageDeduplicationId: aws.String("a b")}, refused: &badParameter},
		{name: "delay of its own", mark: "R", in: sqs.SendMessageInput{DelaySeconds: 1}, refused: &badParameter},
	}
	everywhere = []messageFact{
		{name: "plain", mark: "D"},
		{name: "tab, newline, return", mark: "D", in: sqs.SendMessageInput{MessageBody: aws.String("\t\n\r")}},
		{name: "edges of the allowed ranges", mark: "D", in: sqs.SendMessageInput{MessageBody: aws.String(" \uD7FF\uE000\uFFFD\U00010000\U0010FFFF")}},
		{name: "null byte", mark: "D", in: sqs.SendMessageInput{MessageBody: aws.String("a\x00")}, refused: &badContents},
		{name: "control character", mark: "R", in: sqs.SendMessageInput{MessageBody: aws.String("a\x1f")}, refused: &badContents},
		{name: "U+FFFE", mark: "D", in: sqs.SendMessageInput{MessageBody: aws.String("\uFFFE")}, refused: &badContents},
		{name: "U+FFFF", mark: "D", in: sqs.SendMessageInput{MessageBody: aws.String("\uFFFF")}, refused: &badContents},
		{name: "invalid UTF-8 arrives as U+FFFD", mark: "S", in: sqs.SendMessageInput{MessageBody: aws.String("a\xff")}},

		{name: "10 attributes", mark: "D", in: sqs.SendMessageInput{MessageAttributes: attributesOf(10)}},
		{name: "11 attributes", mark: "U in a batch", in: sqs.SendMessageInput{MessageAttributes: attributesOf(11)}, refused: &badParameter},
		{name: "attribute name of 256", mark: "D", in: withAttribute(letters+letters, text("x"))},
		{name: "attribute name of 257", mark: "D", in: withAttribute(letters+letters+"a", text("x")), refused: &badParameter},
		{name: "attribute name of all characters", mark: "D", in: withAttribute("aZ0_-.b", text("x"))},
		{name: "attribute name with a space", mark: "D", in: withAttribute("a b", text("x")), refused: &badParameter},
		{name: "empty attribute name", mark: "D", in: withAttribute("", text("x")), refused: &badParameter},
		{name: "attribute name AWS.", mark: "D", in: withAttribute("AWS.x", text("x")), refused: &badParameter},
		{name: "attribute name aws.", mark: "D", in: withAttribute("aws.x", text("x")), refused: &badParameter},
		{name: "attribute name AmaZon.", mark: "D", in: withAttribute("AmaZon.x", text("x")), refused: &badParameter},
		{name: "attribute name awsome", mark: "D", in: withAttribute("awsome", text("x"))},
		{name: "attribute name starting with a period", mark: "D", in: withAttribute(".a", text("x")), refused: &badParameter},
		{name: "attribute name ending with a period", mark: "D", in: withAttribute("a.", text("x")), refused: &badParameter},
		{name: "attribute name with two periods in a row", mark: "D", in: withAttribute("a..b", text("x")), refused: &badParameter},
		{name: "empty String attribute", mark: "R", in: withAttribute("a", text("")), refused: &badParameter},
		{name: "empty Binary attribute", mark: "R", in: withAttribute("a", binary("")), refused: &badParameter},
		{name: "attribute with a control character", mark: "R", in: withAttribute("a", text("\x01")), refused: &badParameter},
		{name: "Binary attribute with any bytes", mark: "D", in: withAttribute("a", binary("\x00\xff"))},
		{name: "labelled types", mark: "D", in: sqs.SendMessageInput{MessageAttributes: attributes{"s": typed("String.json", "{}"), "n": typed("Number.int", "-1e3")}}},
		{name: "unknown type", mark: "D", in: withAttribute("a", typed("Text", "x")), refused: &badParameter},
		{name: "empty type", mark: "D", in: withAttribute("a", typed("", "x")), refused: &badParameter},
		{name: "type of 256", mark: "D", in: withAttribute("a", typed("String."+strings.Repeat("l", 249), "x"))},
		{name: "type of 257", mark: "D", in: withAttribute("a", typed("String."+strings.Repeat("l", 250), "x")), refused: &badParameter},
		{name: "Number that is none", mark: "D", in: withAttribute("a", typed("Number", "x")), refused: &badParameter},
		{name: "list values", mark: "D", in: withAttribute("a", types.MessageAttributeValue{DataType: aws.String("String"), StringListValues: []string{"x"}}), refused: &badParameter},
		{name: "trace header", mark: "D", in: withSystem("AWSTraceHeader", text("Root=1"))},
		{name: "another system attribute", mark: "D", in: withSystem("SenderId", text("me")), refused: &badParameter},
	}
)

func withAttribute(name string, value types.MessageAttributeValue) sqs.SendMessageInput {
	return sqs.SendMessageInput{MessageAttributes: attributes{name: value}}
}

func withSystem(name string, v types.MessageAttributeValue) sqs.SendMessageInput {
	return sqs.SendMessageInput{MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
		name: {DataType: v.DataType, StringValue: v.StringValue},
	}}
}

// complete fills in what every message of a queue needs.
func complete(in sqs.SendMessageInput, url string) *sqs.SendMessageInput {
	in.QueueUrl = &url
	if in.MessageBody == nil {
		in.MessageBody = aws.String("x")
	}
	if strings.HasSuffix(url, ".fifo") {
		if in.MessageGroupId == nil {
			in.MessageGroupId = aws.String("g")
		}
		if in.MessageDeduplicationId == nil {
			in.MessageDeduplicationId = aws.String("d")
		}
	}
	return &in
}

func entryOf(id string, in *sqs.SendMessageInput) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{
		Id: &id, MessageBody: in.MessageBody, DelaySeconds: in.DelaySeconds, MessageAttributes: in.MessageAttributes,
		MessageSystemAttributes: in.MessageSystemAttributes,
		MessageGroupId:          in.MessageGroupId, MessageDeduplicationId: in.MessageDeduplicationId,
	}
}

// eachMessageFact runs a test for each fact on each queue that it holds for.
func eachMessageFact(t *testing.T, test func(t *testing.T, b *bench, queue string, f messageFact)) {
	for queue, facts := range map[string][]messageFact{
		"orders": slices.Concat(standard, everywhere), "orders.fifo": slices.Concat(fifo, everywhere),
	} {
		for _, f := range facts {
			t.Run(fmt.Sprintf("%s/%s [%s]", queue, f.name, f.mark), func(t *testing.T) {
				t.Parallel()
				test(t, newBench(t), queue, f)
			})
		}
	}
}

func TestSendMessageTakesAndRefuses(t *testing.T) {
	t.Parallel()
	eachMessageFact(t, func(t *testing.T, b *bench, queue string, f messageFact) {
		url := b.CreateQueue(queue, nil)
		_, err := b.sqs.SendMessage(t.Context(), complete(f.in, url), withoutChecksum)
		if f.refused != nil {
			f.refused.require(t, err)
			require.Empty(t, b.Messages(queue))
			return
		}
		require.NoError(t, err)
		require.Len(t, b.Messages(queue), 1)
	})
}

func TestABadEntryFailsAloneByItsOwnFault(t *testing.T) {
	t.Parallel()
	eachMessageFact(t, func(t *testing.T, b *bench, queue string, f messageFact) {
		url := b.CreateQueue(queue, nil)
		neighbour := complete(sqs.SendMessageInput{}, url)
		if queue == "orders.fifo" {
			neighbour.MessageDeduplicationId = aws.String("neighbour")
		}
		out, err := b.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{
			QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{entryOf("fact", complete(f.in, url)), entryOf("neighbour", neighbour)},
		}, withoutChecksum)
		require.NoError(t, err)
		if f.refused == nil {
			require.Len(t, out.Successful, 2)
			require.Len(t, b.Messages(queue), 2)
			return
		}
		require.Len(t, out.Failed, 1)
		require.Equal(t, "fact", *out.Failed[0].Id)
		require.Equal(t, f.refused.code, *out.Failed[0].Code)
		require.True(t, out.Failed[0].SenderFault)
		require.NotEmpty(t, out.Failed[0].Message)
		require.Len(t, out.Successful, 1)
		require.Len(t, b.Messages(queue), 1)
	})
}

// withoutChecksum lets through what the SDK itself changes on its way.
func withoutChecksum(o *sqs.Options) { o.DisableMessageChecksumValidation = true }

func TestSendMessageNeedsWhatItsQueueNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, f := range []struct {
		name, mark string
		in         sqs.SendMessageInput
		refused    refusal
	}{
		{"empty body", "R", sqs.SendMessageInput{QueueUrl: &b.standard, MessageBody: aws.String("")}, missing},
		{"FIFO without group", "R", sqs.SendMessageInput{QueueUrl: &b.fifo, MessageBody: aws.String("x"), MessageDeduplicationId: aws.String("d")}, missing},
		{"FIFO without deduplication id", "R", sqs.SendMessageInput{QueueUrl: &b.fifo, MessageBody: aws.String("x"), MessageGroupId: aws.String("g")}, badParameter},
		{"no such queue", "R", sqs.SendMessageInput{QueueUrl: aws.String(b.standard + "x"), MessageBody: aws.String("x")}, modelled[*types.QueueDoesNotExist]("AWS.SimpleQueueService.NonExistentQueue")},
		{"empty queue URL", "U", sqs.SendMessageInput{QueueUrl: aws.String(""), MessageBody: aws.String("x")}, missing},
	} {
		t.Run(fmt.Sprintf("%s [%s]", f.name, f.mark), func(t *testing.T) {
			_, err := b.sqs.SendMessage(t.Context(), &f.in)
			f.refused.require(t, err)
		})
	}
	require.Empty(t, b.Messages("orders"))
	require.Empty(t, b.Messages("orders.fifo"))
}

func TestAMessageIsCountedWithItsAttributesInBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	small := b.CreateQueue("small", map[string]string{"MaximumMessageSize": "1024"})
	body := func(n int) *string { return aws.String(strings.Repeat("x", n)) }
	for _, f := range []struct {
		name, mark, queue string
		in                sqs.SendMessageInput
		fits              bool
	}{
		{"1 MiB", "R", b.standard, sqs.SendMessageInput{MessageBody: body(mebibyte)}, true},
		{"1 MiB and a byte", "R", b.standard, sqs.SendMessageInput{MessageBody: body(mebibyte + 1)}, false},
		{"characters are not bytes", "D", b.standard, sqs.SendMessageInput{MessageBody: aws.String(strings.Repeat("😀", mebibyte/4) + "x")}, false},
		{"multi-byte text that fills it", "D", b.standard, sqs.SendMessageInput{MessageBody: aws.String(strings.Repeat("😀", mebibyte/4))}, true},
		{"name, type and value count", "R", b.standard, sqs.SendMessageInput{MessageBody: body(mebibyte - 9), MessageAttributes: attributes{"ab": text("x")}}, true},
		{"name, type and value count, one more", "R", b.standard, sqs.SendMessageInput{MessageBody: body(mebibyte - 8), MessageAttributes: attributes{"ab": text("x")}}, false},
		{"binary counts as itself", "D", b.standard, sqs.SendMessageInput{MessageBody: body(mebibyte - 11), MessageAttributes: attributes{"ab": binary("xyz")}}, true},
		{"trace header is free", "D", b.standard, sqs.SendMessageInput{MessageBody: body(mebibyte), MessageSystemAttributes: withSystem("AWSTraceHeader", text("Root=1")).MessageSystemAttributes}, true},
		{"group and deduplication id are free", "U", b.fifo, sqs.SendMessageInput{MessageBody: body(mebibyte)}, true},
		{"limit of the queue", "D", small, sqs.SendMessageInput{MessageBody: body(1024)}, true},
		{"over the limit of the queue", "D", small, sqs.SendMessageInput{MessageBody: body(1025)}, false},
	} {
		t.Run(fmt.Sprintf("%s [%s]", f.name, f.mark), func(t *testing.T) {
			_, err := b.sqs.SendMessage(t.Context(), complete(f.in, f.queue))
			if f.fits {
				require.NoError(t, err)
				return
			}
			badParameter.require(t, err)
			require.ErrorContains(t, err, "Message must be shorter than")
		})
	}
}
