package sqstest_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

func TestMessageIsReceivedAsSentAndGoneOnceDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	attributes := map[string]types.MessageAttributeValue{
		"event_id": {DataType: aws.String("String"), StringValue: aws.String("e-1")},
		"n":        {DataType: aws.String("Number.int"), StringValue: aws.String("-1.5e3")},
		"raw":      {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 0xff}},
	}
	body := `{"big":12345678901234567890,"t":"<>& \u0007 😀"}`
	sent, err := b.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{
		QueueUrl: &b.standard, MessageBody: &body, MessageAttributes: attributes, MessageGroupId: aws.String("tenant-1"),
	})
	require.NoError(t, err)
	out, err := b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &b.standard, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	require.NoError(t, err)
	require.Len(t, out.Messages, 1)
	m := out.Messages[0]
	require.Equal(t, body, *m.Body)
	require.Equal(t, *sent.MessageId, *m.MessageId)
	require.Equal(t, "tenant-1", m.Attributes["MessageGroupId"])
	require.Equal(t, "1", m.Attributes["ApproximateReceiveCount"])
	require.Equal(t, []byte{0, 1, 0xff}, m.MessageAttributes["raw"].BinaryValue)
	require.Equal(t, "-1.5e3", *m.MessageAttributes["n"].StringValue)
	require.Equal(t, *sent.MD5OfMessageAttributes, *m.MD5OfMessageAttributes)

	_, err = b.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &b.standard, ReceiptHandle: m.ReceiptHandle})
	require.NoError(t, err)
	attrs, err := b.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &b.standard, AttributeNames: []types.QueueAttributeName{"All"}})
	require.NoError(t, err)
	require.Equal(t, "0", attrs.Attributes["ApproximateNumberOfMessagesNotVisible"])
	require.Equal(t, "1048576", attrs.Attributes["MaximumMessageSize"])

	journal := b.Messages("orders")
	require.Len(t, journal, 1)
	require.Equal(t, "e-1", journal[0].Attributes["event_id"].Value)
	require.Equal(t, 1, b.CallCount("SendMessage"))
	require.True(t, b.Calls()[0].Authorized)
}

func TestARepeatWithinABatchIsSwallowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repeat := fifoEntry("2", "again")
	repeat.MessageDeduplicationId = aws.String("1")
	out, err := b.sendBatch(t, b.fifo, entries{fifoEntry("1", "one"), repeat})
	require.NoError(t, err)
	require.Len(t, out.Successful, 2)
	require.Equal(t, *out.Successful[0].MessageId, *out.Successful[1].MessageId)
	require.Equal(t, []string{"one"}, b.receive(t.Context(), t, b.fifo))
	require.Equal(t, 1, b.Deduplicated("orders.fifo"))
}
