package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a relay and PostgreSQL. It sees which statement passes on which
// session, and it can be a network that fails.
type proxy struct {
	url      string // of the database, by way of the proxy
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	links map[*link]bool
	trap  *trap
	down  bool
	thaw  chan struct{} // not nil while nothing passes; closed when it ends
	loses direction     // what new connections lose
}

// direction is a way through the proxy, or both.
type direction int

const (
	toServer direction = 1 << iota
	toClient
)

// moment is when a trap springs.
type moment int

const (
	beforeStatement moment = iota // it has not reached the server
	duringStatement               // it has been sent on, and the answer is not waited for
	afterStatement                // it is committed, with rows in its answer, which the relay doesn't get
)

// trap springs once: when a statement with a fragment passes on a session for the
// (skip+1)th time. From then on nothing passes on that session.
type trap struct {
	application, fragment string
	when                  moment
	skip                  int
	spring                func()
}

// The statements that matter, by the session that they run on and what only they have in them.
var (
	claimStatement = trap{application: "pgrelay leader", fragment: "INSERT INTO pgrelay.claims"}
	stampStatement = trap{application: "pgrelay stamp", fragment: "marked AS"}
)

// newProxy makes a proxy in front of the world's database.
func newProxy(t testing.TB, databaseURL string) *proxy {
	t.Helper()
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{target: u.Host, listener: listener, links: map[*link]bool{}}
	u.Host = listener.Addr().String()
	p.url = u.String()
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.unfreeze()
		p.work.Wait()
	})
	return p
}

// env is what a process needs to go by way of the proxy.
func (p *proxy) env() string { return "DATABASE_URL=" + p.url }

// set arms a trap.
func (p *proxy) set(tr trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = &tr
}

// cut closes all connections, and takes no new one until restore.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for l := range p.links {
		l.close()
	}
}

// freeze lets nothing pass any more, on old connections and on new ones, and closes none.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thaw = make(chan struct{})
}

func (p *proxy) unfreeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw != nil {
		close(p.thaw)
		p.thaw = nil
	}
}

// lose is a network that drops what goes in a direction: on connections that are open for ever, on new ones until restore. An end that
// closes or goes does not become known to the other.
func (p *proxy) lose(d direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loses = d
	for l := range p.links {
		l.loses |= d
	}
}

// restore lets new connections pass.
func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.loses = false, 0
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, client: client, server: server, statements: map[string]string{}, closed: make(chan struct{})}
		p.mu.Lock()
		if p.down {
			l.close()
		}
		l.loses = p.loses
		p.links[l] = true
		p.mu.Unlock()
		p.work.Go(func() { _ = l.fromClient(); l.end(toServer) })
		p.work.Go(func() { _ = l.fromServer(); l.end(toClient) })
	}
}

// link is one session through the proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn
	once           sync.Once
	closed         chan struct{}
	loses          direction // under the proxy's mutex

	// Of the goroutine that reads from the client:
	application string
	statements  map[string]string // by the name under which they are prepared

	mu     sync.Mutex
	caught *trap // its answer is to be held back
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// end closes the link, unless the news of it is lost on its way.
func (l *link) end(news direction) {
	if _, lost := l.state(news); lost {
		<-l.closed
	}
	l.close()
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	delete(l.proxy.links, l)
}

var errSprung = errors.New("the trap has sprung")

func (l *link) state(d direction) (thaw <-chan struct{}, lost bool) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	return l.proxy.thaw, l.loses&d != 0
}

// pass waits while the proxy is frozen, and then writes, unless it is lost.
func (l *link) pass(to net.Conn, frame []byte) error {
	there, back := toServer, toClient
	if to == l.client {
		there, back = back, there
	}
	thaw, _ := l.state(there)
	if thaw != nil {
		select {
		case <-thaw:
		case <-l.closed:
		}
	}
	if _, lost := l.state(there); lost {
		return nil
	}
	_, err := to.Write(frame)
	if _, lost := l.state(back); lost {
		return nil // nobody learns that it is closed
	}
	return err
}

// hold keeps the session open and silent until somebody closes it.
func (l *link) hold() error {
	<-l.closed
	return errSprung
}

func (l *link) fromClient() error {
	r := bufio.NewReader(l.client)
	startup, err := readFrame(r, 0)
	if err != nil {
		return err
	}
	l.application = parameter(startup[8:], "application_name")
	for frame := startup; ; {
		tr := l.watch(frame)
		if tr != nil && tr.when == beforeStatement {
			tr.spring()
			return l.hold()
		}
		if tr != nil && tr.when == afterStatement {
			l.mu.Lock()
			l.caught = tr
			l.mu.Unlock()
		}
		if err := l.pass(l.server, frame); err != nil {
			return err
		}
		if frame, err = readFrame(r, 1); err != nil {
			return err
		}
		if tr != nil && tr.when == duringStatement {
			// What belongs to it follows up to the Sync.
			for ; frame[0] != 'S'; frame, err = readFrame(r, 1) {
				if err != nil {
					return err
				}
				if err := l.pass(l.server, frame); err != nil {
					return err
				}
			}
			_ = l.pass(l.server, frame)
			tr.spring()
			return l.hold()
		}
	}
}

// watch notes what is prepared, and takes the trap if it is for what is now bound.
func (l *link) watch(frame []byte) *trap {
	switch frame[0] {
	case 'P':
		name, rest, _ := bytes.Cut(frame[5:], []byte{0})
		sql, _, _ := bytes.Cut(rest, []byte{0})
		l.statements[string(name)] = string(sql)
	case 'B':
		_, rest, _ := bytes.Cut(frame[5:], []byte{0})
		name, _, _ := bytes.Cut(rest, []byte{0})
		l.proxy.mu.Lock()
		defer l.proxy.mu.Unlock()
		tr := l.proxy.trap
		if tr == nil || tr.application != l.application || !strings.Contains(l.statements[string(name)], tr.fragment) {
			return nil
		}
		if tr.skip--; tr.skip < 0 {
			l.proxy.trap = nil
			return tr
		}
	}
	return nil
}

func (l *link) fromServer() error {
	r := bufio.NewReader(l.server)
	rows := 0
	for {
		frame, err := readFrame(r, 1)
		if err != nil {
			return err
		}
		l.mu.Lock()
		tr := l.caught
		l.mu.Unlock()
		switch {
		case tr == nil:
			err = l.pass(l.client, frame)
		case frame[0] == 'Z':
			tr.spring()
			return l.hold()
		case frame[0] == 'D':
			rows++
		}
		if err != nil {
			return err
		}
	}
}

// readFrame reads a message that has a length behind so many bytes of type.
func readFrame(r io.Reader, typed int) ([]byte, error) {
	head := make([]byte, typed+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[typed:]))
	frame := make([]byte, typed+n)
	copy(frame, head)
	_, err := io.ReadFull(r, frame[typed+4:])
	return frame, err
}

// parameter finds a setting among those of a startup message.
func parameter(settings []byte, name string) string {
	fields := strings.Split(string(settings), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == name {
			return fields[i+1]
		}
	}
	return ""
}
