package smtp

import (
	"context"
	"errors"
	"fmt"

	"github.com/emersion/go-smtp"

	"pgrelay/relay"
)

// Codes that mean the same at every step.
const (
	closing      = 421 // the server ends the session
	authRequired = 530 // RFC 4954
	authFailed   = 535
	tlsRequired  = 538
)

// refusalOf is the server's answer in an error; nil if there was none.
func refusalOf(err error) *smtp.SMTPError {
	var refusal *smtp.SMTPError
	if errors.As(err, &refusal) {
		return refusal
	}
	return nil
}

// destinations says that a refusal within a transaction is not the message's: the server goes away, or wants a login.
func destinations(at step, refusal *smtp.SMTPError) bool {
	switch refusal.Code {
	case closing:
		return at != stepDot // there it answers for the message
	case authRequired, authFailed, tlsRequired:
		return true
	}
	return refusal.Code/100 != 4 && refusal.Code/100 != 5
}

// refused is the outcome of a message that the server refused, at RCPT its recipient.
func refused(at step, refusal *smtp.SMTPError) relay.Result {
	what, noun := "message", "the message"
	if at == stepRcpt {
		what, noun = "recipient", "the recipient"
	}
	if refusal.Code/100 == 4 {
		return relay.Result{
			Outcome: relay.OutcomeRetry, Reason: what + "_deferred", Detail: fmt.Sprintf("the server refused %s for now%s", noun, said(refusal)),
		}
	}
	return relay.Result{
		Outcome: relay.OutcomeRejected, Reason: what + "_refused", Detail: fmt.Sprintf("the server refused %s for good%s", noun, said(refusal)),
	}
}

// unknown is for a message whose dot went out and was not answered, or not so that one could tell.
func unknown(ctx context.Context, refusal *smtp.SMTPError) relay.Result {
	r := relay.Result{Outcome: relay.OutcomeUnknown, Reason: "reply_lost", Detail: "the connection broke before the server had answered for the message"}
	switch {
	case refusal != nil:
		r.Reason, r.Detail = "unclear_reply", "the server's answer for the message says neither yes nor no"+said(refusal)
	case ended(ctx):
		r.Reason, r.Detail = "canceled", "the call was cut off before the server had answered for the message"
	case ctx.Err() != nil:
		r.Reason, r.Detail = "timeout", "the server did not answer for the message in time"
	}
	return r
}

func rejection(why *relay.Rejection) relay.Result {
	return relay.Result{Outcome: relay.OutcomeRejected, Reason: why.Reason, Detail: why.Detail}
}

func tooLarge(size, most int) *relay.Rejection {
	return &relay.Rejection{Reason: "message_too_large", Detail: fmt.Sprintf("the mail has %d bytes; the server takes %d", size, most)}
}

// meanings are the subjects of RFC 3463's codes, and those details that are met most.
var meanings = map[[2]int]string{
	{1, 1}: "no such mailbox", {1, 2}: "no such domain", {1, 10}: "the domain takes no mail",
	{2, 1}: "the mailbox is disabled", {2, 2}: "the mailbox is full", {2, 3}: "too large for the mailbox",
	{3, 4}: "too large", {7, 1}: "refused by policy",
	{1, 0}: "address", {2, 0}: "mailbox", {3, 0}: "mail system", {4, 0}: "network", {5, 0}: "protocol", {6, 0}: "content", {7, 0}: "policy or security",
}

// said gives an answer's codes in brackets, with what the second means. Its text is left out: servers repeat addresses and
// parts of the message in it.
func said(refusal *smtp.SMTPError) string {
	code := refusal.EnhancedCode
	if code[0] != refusal.Code/100 {
		return fmt.Sprintf(" (%d)", refusal.Code)
	}
	meaning, ok := meanings[[2]int{code[1], code[2]}]
	if !ok {
		meaning = meanings[[2]int{code[1], 0}]
	}
	if meaning != "" {
		meaning = ": " + meaning
	}
	return fmt.Sprintf(" (%d %d.%d.%d%s)", refusal.Code, code[0], code[1], code[2], meaning)
}
