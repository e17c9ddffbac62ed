package sqstest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

// call puts one request to a server of its own.
func call(srv http.Handler, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Amz-Target", target)
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, r)
	return w
}

func TestErrorsBearBothSpellings(t *testing.T) {
	t.Parallel()
	srv := sqstest.New()
	srv.CreateQueue("q", nil)
	for _, f := range []struct {
		target, body string
		status       int
		kind, query  string
	}{
		{"AmazonSQS.SendMessage", `{"QueueUrl":"none","MessageBody":"x"}`, 400, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue;Sender"},
		{"AmazonSQS.SendMessage", `{"QueueUrl":"q"}`, 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender"},
		{"AmazonSQS.SendMessage", `{"QueueUrl":"q","MessageBody":"x","DelaySeconds":901}`, 400, "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue;Sender"},
		{"AmazonSQS.SendMessage", `{"QueueUrl":"q","MessageBody":"\u0001"}`, 400, "com.amazonaws.sqs#InvalidMessageContents", "InvalidMessageContents;Sender"},
		{"AmazonSQS.SendMessageBatch", `{"QueueUrl":"q","Entries":[]}`, 400, "com.amazonaws.sqs#EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest;Sender"},
		{"AmazonSQS.DeleteMessage", `{"QueueUrl":"q","ReceiptHandle":"?"}`, 404, "com.amazonaws.sqs#ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid;Sender"},
		{"AmazonSQS.SendMessage", `{`, 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender"},
		{"AmazonSQS.SendMessage", `{"QueueUrl":1}`, 400, "com.amazon.coral.service#SerializationException", "MalformedInput;Sender"},
		{"AmazonSQS.Dance", `{}`, 400, "com.amazon.coral.service#UnknownOperationException", "InvalidAction;Sender"},
		{"SendMessage", `{}`, 400, "com.amazon.coral.service#UnknownOperationException", "InvalidAction;Sender"},
	} {
		w := call(srv, f.target, f.body)
		var body struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
		require.Equal(t, f.status, w.Code, f.body)
		require.Equal(t, f.kind, body.Type)
		require.NotEmpty(t, body.Message)
		require.Equal(t, f.query, w.Header().Get("x-amzn-query-error"))
		require.NotEmpty(t, w.Header().Get("x-amzn-RequestId"))
	}
	require.False(t, srv.Calls()[0].Authorized)
}

func TestARequestBeyondAllLimitsIsNotRead(t *testing.T) {
	t.Parallel()
	srv := sqstest.New()
	srv.CreateQueue("q", nil)
	w := call(srv, "AmazonSQS.SendMessage", `{"QueueUrl":"q","MessageBody":"`+strings.Repeat("x", 16<<20)+`"}`)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Empty(t, srv.Messages("q"))
}

// Whatever comes in, the answer is JSON with a status of ours, and what is accepted obeys
// the rules.
func FuzzServer(f *testing.F) {
	f.Add("SendMessage", `{"QueueUrl":"q","MessageBody":"x","MessageAttributes":{"a":{"DataType":"String"}}}`)
	f.Add("SendMessage", `{"QueueUrl":"q.fifo","MessageBody":"x","MessageGroupId":"g","MessageDeduplicationId":"d"}`)
	f.Add("SendMessageBatch", `{"QueueUrl":"q","Entries":[{"Id":"1","MessageBody":"x","MessageAttributes":{"a":{"DataType":"Number","BinaryValue":"eA=="}}}]}`)
	f.Add("SendMessageBatch", `{"QueueUrl":"q.fifo","Entries":[null,{}]}`)
	f.Add("ReceiveMessage", `{"QueueUrl":"q","MaxNumberOfMessages":3,"VisibilityTimeout":0}`)
	f.Add("ChangeMessageVisibility", `{"QueueUrl":"q","ReceiptHandle":"eCMx"}`)
	f.Add("CreateQueue", `{"QueueName":"q","Attributes":{"DelaySeconds":"-"}}`)
	f.Add("DeleteMessageBatch", `{"QueueUrl":"q","Entries":[{"Id":"1","ReceiptHandle":"I2E"}]}`)
	f.Fuzz(func(t *testing.T, action, body string) {
		srv := sqstest.New()
		srv.CreateQueue("q", nil)
		srv.CreateQueue("q.fifo", nil)
		srv.Close() // no long polls
		w := call(srv, "AmazonSQS."+action, body)
		require.True(t, json.Valid(w.Body.Bytes()))
		require.Less(t, w.Code, 500)
		for _, m := range append(srv.Messages("q"), srv.Messages("q.fifo")...) {
			require.NotEmpty(t, m.Body)
			require.NotContains(t, m.Body, "\x00")
			for _, a := range m.Attributes {
				require.NotEmpty(t, a.Value)
			}
		}
	})
}
