package smtp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"

	"github.com/emersion/go-smtp"

	"pgrelay/relay"
)

// Reasons of faults.
const (
	reasonUnreachable = "unreachable"
	reasonLost        = "connection_lost"
	reasonNotSMTP     = "not_smtp"
	reasonTLS         = "tls_failed"
	reasonNoTLS       = "starttls_missing"
	reasonAuth        = "auth_failed"
	reasonSender      = "sender_refused"
	reasonBusy        = "server_busy"
	reasonRefused     = "refused"
)

// fault judges an error that is the destination's. No text of the server's is repeated where it could hold more than what the
// configuration says: an answer to AUTH might echo the password, one within a transaction the message.
func (p *Publisher) fault(ctx context.Context, at step, err error) *relay.Fault {
	if refusal := refusalOf(err); refusal != nil {
		return p.refusal(at, refusal)
	}
	if advice := tlsAdvice(err); advice != "" && (at == stepTLS || at == stepStartTLS || at == stepHello) {
		return p.complaint(reasonTLS, "the TLS handshake failed: %s", advice)
	}
	var proto textproto.ProtocolError
	var broken net.Error
	switch {
	case errors.As(err, &proto), errors.Is(err, smtp.ErrTooLongLine):
		return p.complaint(reasonNotSMTP, "what answers there is no SMTP; correct host, port and tls (starttls: port 587, tls: 465)")
	case errors.As(err, &broken), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), ctx.Err() != nil:
		// judged below
	case at == stepAuth:
		return p.complaint(reasonAuth, "the server's questions at AUTH make no login")
	case at == stepStartTLS:
		// The client's own error, which has no type, and there is no other.
		return p.complaint(reasonNoTLS, "the server offers no STARTTLS, and mail is never sent without; set tls: tls if it speaks TLS at once (port 465)")
	}
	reason, why := reasonLost, fmt.Sprintf("the connection broke at %s", at)
	switch {
	case errors.Is(context.Cause(ctx), errDeadline):
		why = fmt.Sprintf("no answer at %s within %s", at, p.timeout)
	case at == stepConnect:
		why = "no connection (" + plain(err.Error()) + ")"
	}
	if at != stepMail && at != stepRcpt && at != stepData && at != stepBody {
		reason = reasonUnreachable
	}
	fault := p.complaint(reason, "%s; check host, port, tls and network", why)
	fault.Err = err
	return fault
}

// refusal is a fault that the server has answered.
func (p *Publisher) refusal(at step, refusal *smtp.SMTPError) *relay.Fault {
	words := said(refusal)
	if at != stepAuth && at != stepRcpt && at != stepData && at != stepDot {
		words = fmt.Sprintf(" (%d %s)", refusal.Code, plain(refusal.Message))
	}
	switch code := refusal.Code; {
	case code/100 == 4:
		fault := p.complaint(reasonBusy, "the server wants no mail for now, at %s%s", at, words)
		fault.Throttled = true
		return fault
	case at == stepAuth, code == authFailed:
		return p.complaint(reasonAuth, "the server refused the login%s; check username and password", words)
	case code == authRequired, code == tlsRequired:
		return p.complaint(reasonAuth, "the server wants a login or TLS first%s; set username and password, and tls", words)
	case at == stepMail:
		return p.complaint(reasonSender, "the server takes no mail from the address in from%s; correct from, or allow this login to send as it", words)
	}
	return p.complaint(reasonRefused, "the server refused %s%s", at, words)
}

// tlsAdvice says what to do about a handshake that failed; empty if that isn't what happened.
func tlsAdvice(err error) string {
	var (
		name    x509.HostnameError
		signer  x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		other   *tls.CertificateVerificationError
		text    tls.RecordHeaderError
		op      *net.OpError
	)
	switch {
	case errors.As(err, &name):
		return "the certificate is another host's; set host to the name that is in it"
	case errors.As(err, &signer):
		return "nobody whom this machine trusts has signed the certificate; install that authority, or name its file in SSL_CERT_FILE"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has run out or isn't valid yet; renew it, or set this host's clock"
	case errors.As(err, &invalid), errors.As(err, &other):
		return "the certificate is not valid"
	case errors.As(err, &text):
		return "the server speaks no TLS there; set tls: starttls, which is usual on port 587, or correct the port"
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"):
		return "the server and pgrelay agree on no version or cipher; TLS 1.2 is the least"
	}
	return ""
}

// complaint is a fault that names the server.
func (p *Publisher) complaint(reason, format string, args ...any) *relay.Fault {
	return &relay.Fault{Reason: reason, Detail: "mail server " + p.addr + ": " + fmt.Sprintf(format, args...)}
}

// back is the outcome of what was not sent. That a call is ended by its caller is nobody's fault.
func (p *Publisher) back(ctx context.Context, fault *relay.Fault) (relay.Result, *relay.Fault) {
	if ended(ctx) {
		return notSent, nil
	}
	return backFor(fault), fault
}

var notSent = relay.Result{Outcome: relay.OutcomeBack, Reason: "not_sent", Detail: "the call ended before the message was sent"}

func backFor(f *relay.Fault) relay.Result {
	return relay.Result{Outcome: relay.OutcomeBack, Reason: f.Reason, Detail: f.Detail}
}

// ended says that the caller ended the call, not its own deadline.
func ended(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errDeadline)
}

// plain makes text of another program safe and short: printable, one line.
func plain(s string) string {
	const most = 200
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
