package sqs

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"pgrelay/relay"
)

// settle takes every entry of an answer by itself. What neither list names, or both,
// is unknown. The fault is that of the last entry that has one.
func (p *Publisher) settle(batch []*relay.Message, out *sqs.SendMessageBatchOutput, results []relay.Result) *relay.Fault {
	fill(results, relay.Result{Outcome: relay.OutcomeUnknown, Reason: "missing_from_reply", Detail: "SQS answered without a word on this message"})
	for i := range out.Successful {
		e := &out.Successful[i]
		if at, ok := entry(e.Id, len(batch)); ok {
			results[at] = delivered(batch[at].Body, aws.ToString(e.MD5OfMessageBody))
		}
	}
	var fault *relay.Fault
	for i := range out.Failed {
		e := &out.Failed[i]
		at, ok := entry(e.Id, len(batch))
		if !ok {
			continue
		}
		if results[at].Outcome == relay.OutcomeDelivered {
			results[at] = relay.Result{Outcome: relay.OutcomeUnknown, Reason: "contradictory_reply", Detail: "SQS named this message as accepted and as refused"}
			continue
		}
		var f *relay.Fault
		if results[at], f = p.failed(e); f != nil {
			fault = f
		}
	}
	return fault
}

// delivered compares what SQS stored with what was sent; an answer without a checksum
// (some local servers') is believed.
func delivered(body, sum string) relay.Result {
	want := md5.Sum([]byte(body))
	if sum != "" && sum != hex.EncodeToString(want[:]) {
		return relay.Result{Outcome: relay.OutcomeUnknown, Reason: "checksum_mismatch", Detail: "SQS answered with the MD5 of another body"}
	}
	return relay.Result{Outcome: relay.OutcomeDelivered}
}

// failed judges one entry that SQS refused. The code comes before SenderFault, since
// throttling has been seen with the sender blamed.
func (p *Publisher) failed(e *types.BatchResultErrorEntry) (relay.Result, *relay.Fault) {
	code, message := aws.ToString(e.Code), aws.ToString(e.Message)
	switch v := judge(code); {
	case v.class == classThrottled || v.class == classDestination:
		fault := p.codeFault(v, code, message)
		return backFor(fault), fault
	case v.class == classMessage && e.SenderFault:
		return rejection(v, code, message), nil
	}
	return relay.Result{Outcome: relay.OutcomeRetry, Reason: "refused_for_now", Detail: "SQS refused the message for now" + said(code)}, nil
}

// rejection tells why SQS refused a message. SQS repeats parts of the message in what it
// writes, so that is searched for the name of the parameter and not shown.
func rejection(v verdict, code, message string) relay.Result {
	detail := "SQS refused the message" + said(code)
	for _, name := range []string{"MessageGroupId", "MessageDeduplicationId", "DelaySeconds", "MessageAttribute", "MessageBody"} {
		if strings.Contains(message, name) {
			detail = fmt.Sprintf("SQS refused the message for its %s%s", name, said(code))
			break
		}
	}
	return relay.Result{Outcome: relay.OutcomeRejected, Reason: v.reason, Detail: detail}
}

// entry turns an entry's id back into its index.
func entry(id *string, n int) (int, bool) {
	i, err := strconv.Atoi(aws.ToString(id))
	return i, err == nil && i >= 0 && i < n
}

func fill(results []relay.Result, r relay.Result) {
	for i := range results {
		results[i] = r
	}
}

func backFor(f *relay.Fault) relay.Result {
	return relay.Result{Outcome: relay.OutcomeBack, Reason: f.Reason, Detail: f.Detail}
}
