package smtp

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// goodbye is how long a server may take to answer QUIT.
const goodbye = time.Second

// connection is a session with the server, logged in.
type connection struct {
	raw    net.Conn
	client *smtp.Client
	offers
	mails  int // transactions begun
	reaper *time.Timer
}

// offers is what the server said that it takes. It is asked once: later the client would ask the server again, which may be dead.
type offers struct {
	utf8 bool
	most int // bytes of a mail; 0: no limit
}

// bind has the end of ctx break the connection, which nothing else does: the client's own time limits are set beyond any call's. The
// connection can be used again if release says so.
func (c *connection) bind(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.raw.Close() })
}

// close breaks the connection.
func (c *connection) close() { _ = c.raw.Close() }

// quit says goodbye.
func (c *connection) quit() {
	c.client.CommandTimeout = goodbye
	_ = c.client.Quit() // it ends either way
	c.close()
}

// dial connects and logs in.
func (p *Publisher) dial(ctx context.Context) (*connection, *relay.Fault) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, p.fault(ctx, stepConnect, err)
	}
	return p.session(ctx, raw)
}

// session makes a connection of one that stands. It closes it if it can't.
func (p *Publisher) session(ctx context.Context, raw net.Conn) (*connection, *relay.Fault) {
	c := &connection{raw: raw}
	release := c.bind(ctx)
	fault := p.begin(ctx, c)
	if !release() && fault == nil {
		fault = p.fault(ctx, stepConnect, context.Cause(ctx))
	}
	if fault != nil {
		c.close()
		return nil, fault
	}
	return c, nil
}

// begin brings a new connection to where mails can be sent.
func (p *Publisher) begin(ctx context.Context, c *connection) *relay.Fault {
	if fault := p.secure(ctx, c); fault != nil {
		return fault
	}
	c.client.CommandTimeout, c.client.SubmissionTimeout = 2*p.timeout, 2*p.timeout
	// After STARTTLS this is where the handshake takes place.
	if err := c.client.Hello(localName(c.raw)); err != nil {
		return p.fault(ctx, stepHello, err)
	}
	if p.username != "" {
		if fault := p.logIn(ctx, c); fault != nil {
			return fault
		}
	}
	c.utf8, _ = c.client.Extension("SMTPUTF8")
	c.most, _ = c.client.MaxMessageSize()
	return nil
}

// secure makes the client, over TLS as far as the configuration wants that. It never goes on without.
func (p *Publisher) secure(ctx context.Context, c *connection) *relay.Fault {
	switch p.mode {
	case config.TLSNone:
		c.client = smtp.NewClient(c.raw)
	case config.TLSImplicit:
		conn := tls.Client(c.raw, p.tls)
		if err := conn.HandshakeContext(ctx); err != nil {
			return p.fault(ctx, stepTLS, err)
		}
		c.client = smtp.NewClient(conn)
	default:
		client, err := smtp.NewClientStartTLS(c.raw, p.tls)
		if err != nil {
			return p.fault(ctx, stepStartTLS, err)
		}
		c.client = client
	}
	return nil
}

func (p *Publisher) logIn(ctx context.Context, c *connection) *relay.Fault {
	var mechanism sasl.Client
	switch {
	case c.client.SupportsAuth(sasl.Plain):
		mechanism = sasl.NewPlainClient("", p.username, string(p.password))
	case c.client.SupportsAuth(sasl.Login):
		mechanism = &login{username: p.username, password: p.password}
	default:
		return p.complaint(reasonAuth, "the server takes no login by PLAIN or LOGIN; leave username and password out, or correct host, port and tls")
	}
	if err := c.client.Auth(mechanism); err != nil {
		return p.fault(ctx, stepAuth, err)
	}
	return nil
}

// localName is what we call ourselves: the host's name if it is a full one, else its address (RFC 5321, 4.1.4).
func localName(conn net.Conn) string {
	if name, err := os.Hostname(); err == nil && strings.Contains(strings.Trim(name, "."), ".") && isASCII(name) {
		return name
	}
	if addr, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		if v4 := addr.IP.To4(); v4 != nil {
			return "[" + v4.String() + "]"
		}
		return "[IPv6:" + addr.IP.String() + "]"
	}
	return "localhost"
}
