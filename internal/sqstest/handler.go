package sqstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// maxRequest is above anything that AWS takes, each byte of 1 MiB escaped to six.
const maxRequest = 16 << 20

// input is a decoded request of one action.
type input interface {
	// describe fills in what a fault hook and the call log get to see.
	describe(r *Request)
	run(ctx context.Context, s *Server, f Fault) (any, error)
}

var actions = map[string]func() input{
	"CreateQueue":             func() input { return new(createQueue) },
	"GetQueueUrl":             func() input { return new(getQueueURL) },
	"GetQueueAttributes":      func() input { return new(getQueueAttributes) },
	"SetQueueAttributes":      func() input { return new(setQueueAttributes) },
	"ListQueues":              func() input { return new(listQueues) },
	"DeleteQueue":             func() input { return new(deleteQueue) },
	"PurgeQueue":              func() input { return new(purgeQueue) },
	"SendMessage":             func() input { return new(sendMessage) },
	"SendMessageBatch":        func() input { return new(sendMessageBatch) },
	"ReceiveMessage":          func() input { return new(receiveMessage) },
	"DeleteMessage":           func() input { return new(deleteMessage) },
	"DeleteMessageBatch":      func() input { return new(deleteMessageBatch) },
	"ChangeMessageVisibility": func() input { return new(changeMessageVisibility) },
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	action, in, err := decode(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	req := Request{Action: action, AccessKey: accessKey(r)}
	in.describe(&req)
	s.calls.add(Call{
		Action: action, Queue: req.Queue, Entries: len(req.Entries), At: s.Now(),
		Authorized: r.Header.Get("Authorization") != "",
	})
	fault := s.faultFor(req)
	out, err := s.perform(r.Context(), in, fault)
	s.pause(r.Context(), fault.Delay)
	if fault.CutBefore || fault.CutAfter {
		cut()
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, out)
}

// accessKey is the one of the request's signature, empty if there is none.
func accessKey(r *http.Request) string {
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ := strings.Cut(credential, "/")
	return key
}

// perform runs the action unless the fault takes its place.
func (s *Server) perform(ctx context.Context, in input, fault Fault) (any, error) {
	if fault.CutBefore {
		return nil, nil
	}
	if e := fault.failure(); e != nil {
		return nil, e
	}
	return in.run(ctx, s, fault)
}

func decode(w http.ResponseWriter, r *http.Request) (action string, in input, err error) {
	action, found := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	fresh, known := actions[action]
	if !found || !known {
		return action, nil, refuse("UnknownOperationException", "The requested operation is not known.")
	}
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= maxRequest {
		body.Grow(int(n) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxRequest)); err != nil {
		return action, nil, refuse("SerializationException", "The request is too long or was cut.")
	}
	in = fresh()
	if err := json.Unmarshal(body.Bytes(), in); err != nil {
		return action, nil, refuse("SerializationException", "The request is no valid JSON for this operation.")
	}
	return action, in, nil
}

func writeError(w http.ResponseWriter, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{status: http.StatusInternalServerError, shape: "InternalFailure", code: "InternalFailure", message: err.Error()}
	}
	if e.code == "" {
		w.WriteHeader(e.status)
		return
	}
	w.Header().Set("X-Amzn-Query-Error", e.code+";"+e.fault())
	writeJSON(w, e.status, struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{e.typeName(), e.message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // only types of this package get here
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-amz-json-1.0")
	h.Set("X-Amzn-Requestid", newID())
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	w.Write(body.Bytes()) //nolint:errcheck // the client went: nobody to tell
}

// empty is the answer of actions that tell nothing.
type empty struct{}
