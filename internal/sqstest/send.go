package sqstest

import (
	"context"
	"strings"
)

// traceHeader is the one system attribute that a sender may set.
const traceHeader = "AWSTraceHeader"

// queueRef is the part that requests to one queue share.
type queueRef struct {
	QueueURL string `json:"QueueUrl"`
}

func (q *queueRef) describe(r *Request) { r.Queue = nameOf(q.QueueURL) }

func (o *outgoing) entry() Entry {
	return Entry{
		ID: o.ID, Body: o.MessageBody, GroupID: deref(o.MessageGroupID), DedupID: deref(o.MessageDeduplicationID),
		Attributes: o.attributes(),
	}
}

type sendMessage struct {
	queueRef
	outgoing
}

// sent is the answer for one message.
type sent struct {
	ID                           string `json:"Id,omitempty"`
	MessageID                    string `json:"MessageId"`
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string `json:",omitempty"`
	MD5OfMessageSystemAttributes string `json:",omitempty"`
	SequenceNumber               string `json:",omitempty"`
}

// failedEntry is the answer for one refused entry.
type failedEntry struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

func (in *sendMessage) describe(r *Request) {
	in.queueRef.describe(r)
	r.Entries = []Entry{in.entry()}
}

func (in *sendMessage) run(_ context.Context, s *Server, f Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	set := q.current()
	if err := in.check(set); err != nil {
		return nil, err
	}
	if name := in.missingID(set); name == "MessageGroupId" {
		return nil, missingParameter(name)
	} else if name != "" {
		return nil, invalidParameter("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	fault := f.Entries[""]
	if fault.Code != "" {
		return nil, Fault{Code: fault.Code, Message: fault.Message}.failure()
	}
	return s.accept(q, []*outgoing{&in.outgoing}, f.Entries)[0], nil
}

type sendMessageBatch struct {
	queueRef
	Entries []outgoing
}

// batchAnswer leaves out a list that is empty, as AWS does.
type batchAnswer[T any] struct {
	Successful []T           `json:",omitempty"`
	Failed     []failedEntry `json:",omitempty"`
}

func (in *sendMessageBatch) describe(r *Request) {
	in.queueRef.describe(r)
	for i := range in.Entries {
		r.Entries = append(r.Entries, in.Entries[i].entry())
	}
}

func (in *sendMessageBatch) run(_ context.Context, s *Server, f Fault) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	set := q.current()
	if err := in.check(set); err != nil {
		return nil, err
	}
	var answer batchAnswer[sent]
	var good []*outgoing
	for i := range in.Entries {
		// Entries behind a refused one of their group are stored: what AWS does is unverified.
		switch o := &in.Entries[i]; {
		case f.Entries[o.ID].Code != "":
			fault := f.Entries[o.ID]
			answer.Failed = append(answer.Failed, failedEntry{o.ID, fault.Code, fault.Message, fault.SenderFault})
		default:
			if e := o.check(set); e != nil {
				answer.Failed = append(answer.Failed, failedEntry{o.ID, e.code, e.message, true})
				continue
			}
			good = append(good, o)
		}
	}
	for i, a := range s.accept(q, good, f.Entries) {
		if !f.Entries[good[i].ID].Omit {
			answer.Successful = append(answer.Successful, a)
		}
	}
	return answer, nil
}

// check makes the checks that refuse the batch as a whole. The sum is compared with the
// fixed limit, not with the queue's.
func (in *sendMessageBatch) check(set settings) error {
	ids := make([]string, len(in.Entries))
	total := 0
	for i := range in.Entries {
		ids[i] = in.Entries[i].ID
		total += in.Entries[i].size()
	}
	if err := checkEntries("SendMessageBatch", ids); err != nil {
		return err
	}
	if total > maxMessageSize {
		return refuse("BatchRequestTooLong", "Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxMessageSize, total)
	}
	for i := range in.Entries {
		if name := in.Entries[i].missingID(set); name != "" {
			return invalidParameter("The request must contain the parameter %s.", name)
		}
	}
	return nil
}

// accept stores what no fault discards, in one step, and answers for each message.
func (s *Server) accept(q *queue, messages []*outgoing, faults map[string]EntryFault) []sent {
	answers := make([]sent, len(messages))
	keep := make([]*outgoing, 0, len(messages))
	for i, o := range messages {
		answers[i] = sent{
			ID: o.ID, MessageID: newID(), MD5OfMessageBody: md5OfBody(o.MessageBody),
			MD5OfMessageAttributes:       md5OfAttributes(o.MessageAttributes),
			MD5OfMessageSystemAttributes: md5OfAttributes(o.MessageSystemAttributes),
		}
		if faults[o.ID].WrongMD5 {
			answers[i].MD5OfMessageBody = strings.Repeat("0", 32)
		}
		if !faults[o.ID].Discard {
			keep = append(keep, o)
		}
	}
	receipts := q.accept(s.Now, keep)
	for i, o := range messages {
		if !faults[o.ID].Discard {
			answers[i].MessageID, answers[i].SequenceNumber = receipts[0].messageID, receipts[0].sequence
			receipts = receipts[1:]
		}
	}
	return answers
}
