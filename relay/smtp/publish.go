package smtp

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/emersion/go-smtp"

	"pgrelay/relay"
)

// step is where a transaction stands.
type step string

const (
	stepConnect  step = "connecting"
	stepTLS      step = "the TLS handshake"
	stepStartTLS step = "STARTTLS"
	stepHello    step = "EHLO"
	stepAuth     step = "AUTH"
	stepMail     step = "MAIL"
	stepRcpt     step = "RCPT"
	stepData     step = "DATA"
	stepBody     step = "sending the message"
	stepDot      step = "the end of the message"
)

// Publish sends each message of the batch to its recipient. Of a batch of several, which the limits don't allow, the rest goes back after
// a fault.
func (p *Publisher) Publish(ctx context.Context, batch []*relay.Message) ([]relay.Result, *relay.Fault) {
	if len(batch) == 0 {
		return nil, nil
	}
	var fault *relay.Fault
	if p.server.Load() == nil {
		fault = p.complaint("not_open", "the destination is closed")
	}
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	results := make([]relay.Result, len(batch))
	for i, m := range batch {
		if fault != nil {
			results[i] = backFor(fault)
			continue
		}
		results[i], fault = p.publish(ctx, m)
	}
	return results, fault
}

// letter is one mail to one recipient.
type letter struct {
	from, to string
	utf8     bool
	data     []byte
}

func (p *Publisher) publish(ctx context.Context, m *relay.Message) (relay.Result, *relay.Fault) {
	if ctx.Err() != nil {
		return notSent, nil
	}
	d, bad := parse(m.Body, p.from)
	if bad == nil && m.Recipient == "" {
		bad = &relay.Rejection{Reason: "no_recipient", Detail: "the message was not given to a recipient"}
	}
	if bad != nil {
		return rejection(bad), nil
	}
	data, err := d.render(p.from, m, time.Now())
	if err != nil {
		return rejection(&relay.Rejection{Reason: "malformed_mail", Detail: "no mail can be made of the body"}), nil //nolint:nilerr // it may hold a part of the body
	}
	return p.send(ctx, &letter{from: envelope(p.from.Address), to: m.Recipient, utf8: d.international() || !isASCII(m.Recipient), data: data})
}

// send takes a connection that lies idle, else a new one. The idle one may be dead: then, and only at MAIL, it is tried
// once on a new one.
func (p *Publisher) send(ctx context.Context, l *letter) (relay.Result, *relay.Fault) {
	if c := p.idle.get(); c != nil {
		if result, fault, stale := p.deliver(ctx, c, l); !stale {
			return result, fault
		}
	}
	c, fault := p.dial(ctx)
	if fault != nil {
		return p.back(ctx, fault)
	}
	result, fault, _ := p.deliver(ctx, c, l)
	return result, fault
}

// deliver runs one transaction, and keeps the connection if another can follow. stale says that it got nowhere
// on a connection that had been used before.
func (p *Publisher) deliver(ctx context.Context, c *connection, l *letter) (result relay.Result, fault *relay.Fault, stale bool) {
	if bad := c.refuses(l); bad != nil {
		p.idle.put(c)
		return rejection(bad), nil, false
	}
	release := c.bind(ctx)
	used := c.reaper != nil // has lain idle
	c.mails++
	at, err := transact(c.client, l)
	keep := err == nil
	switch refusal := refusalOf(err); {
	case err == nil:
		result = relay.Result{Outcome: relay.OutcomeDelivered}
	case at == stepMail && used && ctx.Err() == nil && (refusal == nil || refusal.Code == closing):
		stale = true
	case at == stepDot && (refusal == nil || refusal.Code/100 < 4):
		result = unknown(ctx, refusal)
	case refusal != nil && at != stepMail && !destinations(at, refusal):
		result = refused(at, refusal)
		keep = refusal.Code != closing && (at == stepDot || c.client.Reset() == nil)
	default:
		result, fault = p.back(ctx, p.fault(ctx, at, err))
	}
	if release() && keep {
		p.idle.put(c)
	} else {
		c.close()
	}
	return result, fault, stale
}

// refuses says what the server would refuse.
func (o offers) refuses(l *letter) *relay.Rejection {
	switch {
	case l.utf8 && !o.utf8:
		return noSMTPUTF8()
	case o.most > 0 && len(l.data) > o.most:
		return tooLarge(len(l.data), o.most)
	}
	return nil
}

// transact says how far it got. Its error at stepDot is that the answer is missing or bad; before it nothing can have been accepted.
func transact(client *smtp.Client, l *letter) (step, error) {
	if err := client.Mail(l.from, &smtp.MailOptions{UTF8: l.utf8}); err != nil {
		return stepMail, err
	}
	if err := client.Rcpt(l.to, nil); err != nil {
		return stepRcpt, err
	}
	w, err := client.Data()
	if err != nil {
		return stepData, err
	}
	if _, err := w.Write(l.data); err != nil {
		return stepBody, err
	}
	err = w.Close()
	if isWrite(err) {
		return stepBody, err
	}
	if refusal := refusalOf(err); refusal != nil && refusal.Code/100 == 2 {
		err = nil // the client knows 250 only; RFC 5321, 4.2.1, goes by the first digit
	}
	return stepDot, err
}

// isWrite says that an error of the message's end came before its last bytes had left: a write that fails has not written all, and the
// dot comes last. Under TLS the same holds of the record that the dot is in.
func isWrite(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "write"
}
