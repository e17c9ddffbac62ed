package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"pgrelay/relay"
)

// failure is what an error of a whole call means for each of its messages.
type failure struct {
	result relay.Result
	fault  *relay.Fault
	split  bool // one of several messages may be to blame: send them in parts
}

// explain judges a call that brought no list of results. sent says that the request
// got a connection.
func (p *Publisher) explain(ctx context.Context, sent bool, err error) failure {
	var keys keyError
	status := statusOf(err)
	switch {
	case errors.As(err, &keys):
		return p.keyFailure(ctx, keys)
	case status >= http.StatusMultipleChoices:
		return p.refusal(status, err)
	case status == 0 && (!sent || isDial(err)):
		return p.unreachable(ctx, err)
	}
	return unknown(ctx)
}

// refusal judges an answer that refuses the whole request.
func (p *Publisher) refusal(status int, err error) failure {
	var code, message string
	var api smithy.APIError
	if errors.As(err, &api) {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	v := judge(code)
	if v.class == classOther {
		v, code = judgeStatus(status), fmt.Sprintf("HTTP %d %s", status, plain(code))
	}
	if v.class == classMessage || v.class == classTooLong {
		return failure{result: rejection(v, code, message), split: true}
	}
	if v.reason == expired.reason {
		p.keys.forget()
	}
	fault := p.codeFault(v, code, message)
	return failure{result: backFor(fault), fault: fault, split: v.class == classBatch}
}

// judgeStatus is for answers without a code that we know: gateways, proxies, other servers.
func judgeStatus(status int) verdict {
	switch {
	case status == http.StatusTooManyRequests:
		return throttled
	case status == http.StatusRequestEntityTooLarge:
		return verdicts["BatchRequestTooLong"]
	case status >= http.StatusInternalServerError:
		return serverFault
	}
	return refused
}

// unreachable is for a call that never got a connection, so that nothing was sent.
func (p *Publisher) unreachable(ctx context.Context, err error) failure {
	if ended(ctx) {
		return notSent
	}
	cause := err
	if errors.Is(context.Cause(ctx), errDeadline) {
		cause = fmt.Errorf("no connection within %s", p.timeout)
	}
	var u *url.Error // repeats the URL
	if errors.As(cause, &u) {
		cause = u.Err
	}
	fault := p.fault("unreachable", "SQS cannot be reached (%s); check endpoint, region, network and proxy", plain(cause.Error()))
	fault.Err = cause
	return failure{result: backFor(fault), fault: fault}
}

// keyFailure is for a call that found no credentials to sign with.
func (p *Publisher) keyFailure(ctx context.Context, err error) failure {
	if ended(ctx) {
		return notSent
	}
	var api smithy.APIError
	why := ""
	if errors.As(err, &api) {
		why = said(api.ErrorCode())
	}
	fault := p.fault(badKeys.reason, "no AWS credentials could be had%s: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "+
		"or a profile or role that works (a local SQS takes any value)", why)
	return failure{result: backFor(fault), fault: fault}
}

var notSent = failure{result: relay.Result{
	Outcome: relay.OutcomeBack, Reason: "not_sent", Detail: "the call ended before it was sent",
}}

// unknown is for a request that went out and has no answer that can be read.
func unknown(ctx context.Context) failure {
	r := relay.Result{Outcome: relay.OutcomeUnknown, Reason: "reply_lost", Detail: "the connection broke before SQS had answered"}
	switch {
	case ended(ctx):
		r.Reason, r.Detail = "canceled", "the call was cut off before SQS had answered"
	case ctx.Err() != nil:
		r.Reason, r.Detail = "timeout", "SQS did not answer in time"
	}
	return failure{result: r}
}

// openFault is explain for the calls of Open, where no message is at stake.
func (p *Publisher) openFault(ctx context.Context, sent bool, err error) *relay.Fault {
	f := p.explain(ctx, sent, err)
	if f.fault != nil {
		return f.fault
	}
	if f.split {
		return p.fault(refused.reason, "SQS takes this for no queue; check `queue`")
	}
	return p.fault(f.result.Reason, "%s", f.result.Detail)
}

// codeFault tells what a code asks a person to do. What SQS wrote is repeated only
// where it names roles and keys; of a signature it would repeat the signed headers.
func (p *Publisher) codeFault(v verdict, code, message string) *relay.Fault {
	why := said(code)
	if message != "" && (v.reason == denied.reason || v.reason == kms.reason) {
		why += ": " + plain(message)
	}
	fault := p.fault(v.reason, "%s%s", v.advice, why)
	fault.Throttled = v.class == classThrottled
	return fault
}

func (p *Publisher) fault(reason, format string, args ...any) *relay.Fault {
	return &relay.Fault{
		Reason: reason,
		Detail: fmt.Sprintf("queue %s in %s: ", p.target.name, p.target.region) + fmt.Sprintf(format, args...),
	}
}

// ended says that the caller ended the call, not its own deadline.
func ended(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errDeadline)
}

func statusOf(err error) int {
	var r *smithyhttp.ResponseError
	if errors.As(err, &r) && r.Response != nil && r.Response.Response != nil {
		return r.HTTPStatusCode()
	}
	return 0
}

// isDial: the transport dials a second time only for a request of which nothing was
// written.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}

// said adds a code in brackets.
func said(code string) string {
	if code == "" {
		return ""
	}
	return " (" + plain(code) + ")"
}

// plain makes text of another program safe and short: printable, one line.
func plain(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most]
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}
