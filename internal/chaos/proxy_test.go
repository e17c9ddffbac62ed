package chaos_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy is the network between one process and one server.
type proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	network network
	changed chan struct{} // closed when the network changes
}

// Directions.
const (
	up   = 0 // to the server
	down = 1
)

// network is what becomes of bytes. The zero value lets them pass.
type network struct {
	cut     bool // no connection, and none is taken
	blocked [2]bool
	delay   [2]time.Duration // of each piece
}

var errClosed = errors.New("the link is closed")

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: target, links: map[*link]bool{}, changed: make(chan struct{})}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.set(network{cut: true})
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// set changes the network. A cut ends all connections.
func (p *proxy) set(n network) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network = n
	close(p.changed)
	p.changed = make(chan struct{})
	if n.cut {
		p.closeAll()
	}
}

// reset ends all connections, as a router does that has forgotten them.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeAll()
}

func (p *proxy) closeAll() {
	for l := range p.links {
		l.close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		cut := p.network.cut
		p.mu.Unlock()
		if cut {
			_ = client.Close()
			continue
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, ends: [2]net.Conn{client, server}, closed: make(chan struct{})}
		p.mu.Lock()
		p.links[l] = true
		if p.network.cut {
			l.close()
		}
		p.mu.Unlock()
		p.work.Go(func() { l.pump(up) })
		p.work.Go(func() { l.pump(down) })
	}
}

// link is one connection.
type link struct {
	proxy  *proxy
	ends   [2]net.Conn // client, server
	once   sync.Once
	closed chan struct{}
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		_ = l.ends[0].Close()
		_ = l.ends[1].Close()
	})
}

func (l *link) pump(direction int) {
	from, to := l.ends[direction], l.ends[1-direction]
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if l.pass(direction) != nil {
				break
			}
			if _, err := to.Write(piece[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	l.close()
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	delete(l.proxy.links, l)
}

// pass waits for as long as the network holds a piece back.
func (l *link) pass(direction int) error {
	for {
		l.proxy.mu.Lock()
		n, changed := l.proxy.network, l.proxy.changed
		l.proxy.mu.Unlock()
		if !n.blocked[direction] {
			if n.delay[direction] == 0 {
				return nil
			}
			timer := time.NewTimer(n.delay[direction])
			defer timer.Stop()
			select {
			case <-timer.C:
				return nil
			case <-l.closed:
				return errClosed
			}
		}
		select {
		case <-changed:
		case <-l.closed:
			return errClosed
		}
	}
}
