package smtp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"strconv"
	"sync/atomic"
	"time"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// Options is what a destination's configuration does not say.
type Options struct {
	// Roots are the authorities that certificates are verified by; nil are the system's.
	Roots *x509.CertPool
}

// Publisher sends through one mail server. It is safe for concurrent use.
type Publisher struct {
	addr     string // host:port
	mode     string // config.TLSStart, TLSImplicit or TLSNone
	tls      *tls.Config
	username string
	password config.Secret
	from     mail.Address
	timeout  time.Duration
	idle     *pool
	server   atomic.Pointer[offers] // nil while not open
}

var _ relay.Addressed = (*Publisher)(nil)

// New makes a publisher. It calls nobody.
func New(d config.Destination, o Options) (*Publisher, error) {
	if d.Timeout <= 0 {
		return nil, errors.New("timeout: must be above zero")
	}
	if d.Concurrency <= 0 {
		return nil, errors.New("concurrency: must be above zero")
	}
	if d.Username != "" && d.TLS == config.TLSNone && !config.Loopback(d.Host) {
		return nil, errors.New("tls: can't be none with a password")
	}
	from, err := mail.ParseAddress(d.From)
	if err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	return &Publisher{
		addr:     net.JoinHostPort(d.Host, strconv.Itoa(d.Port)),
		mode:     d.TLS,
		tls:      &tls.Config{ServerName: d.Host, RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		username: d.Username,
		password: d.Password,
		from:     *from,
		timeout:  time.Duration(d.Timeout),
		idle:     newPool(d.Concurrency),
	}, nil
}

// Open connects, logs in and asks whether the sender is welcome. The connection is kept for the first mail.
func (p *Publisher) Open(ctx context.Context) error {
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	c, fault := p.dial(ctx)
	if fault != nil {
		return fault
	}
	if fault := p.greet(ctx, c); fault != nil {
		c.close()
		return fault
	}
	p.server.Store(&c.offers)
	p.idle.put(c)
	return nil
}

// greet begins a transaction and gives it up again.
func (p *Publisher) greet(ctx context.Context, c *connection) *relay.Fault {
	release := c.bind(ctx)
	err := c.client.Mail(envelope(p.from.Address), nil)
	if err == nil {
		err = c.client.Reset()
	}
	if !release() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return p.fault(ctx, stepMail, err)
	}
	return nil
}

// Ordered is true: mails of one key go one after the other.
func (p *Publisher) Ordered() bool { return true }

// Limits is one message a call.
func (p *Publisher) Limits() relay.Limits { return relay.Limits{Messages: 1} }

// Size is the document's. What the server counts is known when the mail is made.
func (p *Publisher) Size(m *relay.Message) int { return len(m.Body) }

// Close says goodbye on the connections that are kept.
func (p *Publisher) Close() error {
	p.server.Store(nil)
	p.idle.close()
	return nil
}

// errDeadline is the cause with which a call's own deadline ends its context.
var errDeadline = errors.New("the call's own deadline")

// deadline bounds one call.
func (p *Publisher) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.timeout, errDeadline)
}
