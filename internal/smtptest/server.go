package smtptest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Options is what a server offers. The zero value speaks plain SMTP and wants no login.
type Options struct {
	// TLS has TLS begin with the connection.
	TLS bool
	// StartTLS offers STARTTLS; MAIL is refused without.
	StartTLS bool
	// Username and Password are what AUTH wants; MAIL is refused without. Empty: no login.
	Username, Password string
	// Mechanisms of AUTH; nil is PLAIN and LOGIN.
	Mechanisms []string
	// Extensions are further lines of EHLO, such as "SIZE 1000" or "SMTPUTF8".
	Extensions []string
	// Certificate is another than one for localhost and 127.0.0.1 that Roots verify.
	Certificate *tls.Certificate
}

// Server is a running server.
type Server struct {
	// Roots verify its certificate.
	Roots *x509.CertPool

	options  Options
	tls      *tls.Config
	listener net.Listener
	stop     chan struct{} // closed at the end: ends whatever hangs
	wg       sync.WaitGroup

	mu       sync.Mutex
	fault    func(Command) Fault
	mails    []Mail
	commands []Command
	sessions map[net.Conn]int // by connection: its number
	accepted int
}

// Mail is one accepted message to one recipient.
type Mail struct {
	From, To string
	Data     []byte // as it was sent, without the dots of DATA
	At       time.Time
	Session  int    // the connection's number, from 1
	User     string // who had logged in
	TLS      bool
}

// Start runs a server on loopback until the test ends.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	certificate, roots := issue(t)
	if options.Certificate != nil {
		certificate = *options.Certificate
	}
	s, err := launch(t.Context(), options, &tls.Config{Certificates: []tls.Certificate{certificate}})
	require.NoError(t, err)
	s.Roots = roots
	t.Cleanup(s.Close)
	return s
}

// Launch runs a server without TLS for a program that is no test, such as an example. Whoever launches a server closes it.
func Launch(ctx context.Context) (*Server, error) { return launch(ctx, Options{}, nil) }

func launch(ctx context.Context, options Options, secure *tls.Config) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for SMTP: %w", err)
	}
	s := &Server{options: options, tls: secure, listener: listener, stop: make(chan struct{}), sessions: map[net.Conn]int{}}
	s.wg.Go(s.accept)
	return s, nil
}

// Host and Port are where it listens.
func (s *Server) Host() string { return "127.0.0.1" }

// Port is where it listens.
func (s *Server) Port() int {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	n, _ := strconv.Atoi(port)
	return n
}

// SetFault decides, from now on, how commands go wrong; nil: none does. It is called by several sessions at a time.
func (s *Server) SetFault(fault func(Command) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Mails are those that were accepted, in their order.
func (s *Server) Mails() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Mail(nil), s.mails...)
}

// MailsTo are those to one recipient.
func (s *Server) MailsTo(recipient string) []Mail {
	var list []Mail
	for _, m := range s.Mails() {
		if m.To == recipient {
			list = append(list, m)
		}
	}
	return list
}

// Commands are all that came, in their order.
func (s *Server) Commands() []Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Command(nil), s.commands...)
}

// Sessions says how many connections there were.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Open says how many connections there are.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// CutAll breaks all connections, as a server that is restarted does.
func (s *Server) CutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.sessions {
		_ = conn.Close()
	}
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		s.accepted++
		number := s.accepted
		s.sessions[conn] = number
		s.mu.Unlock()
		s.wg.Go(func() {
			serve(s, conn, number)
			_ = conn.Close()
			s.mu.Lock()
			delete(s.sessions, conn)
			s.mu.Unlock()
		})
	}
}

// Close ends the server and all connections.
func (s *Server) Close() {
	_ = s.listener.Close()
	close(s.stop)
	s.CutAll()
	s.wg.Wait()
}

func (s *Server) keep(m Mail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.At = time.Now()
	s.mails = append(s.mails, m)
}
