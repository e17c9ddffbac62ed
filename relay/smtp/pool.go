package smtp

import (
	"sync"
	"time"
)

const (
	// maxIdle is well below the time after which servers end idle sessions (five minutes by RFC 5321, tens of
	// seconds with some).
	maxIdle = 15 * time.Second
	// maxMails of one connection: servers that count end sessions after a hundred or so.
	maxMails = 50
)

// pool keeps connections between mails. The youngest goes first, so that the rest can age.
type pool struct {
	most int

	mu   sync.Mutex
	idle []*connection
	wg   sync.WaitGroup // of goodbyes
}

func newPool(most int) *pool { return &pool{most: most} }

// get takes a connection; nil if there is none.
func (p *pool) get() *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	p.idle = p.idle[:last]
	c.reaper.Stop()
	return c
}

// put keeps a connection that is between two mails, for a while.
func (p *pool) put(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.mails >= maxMails || len(p.idle) >= p.most {
		p.leave(c)
		return
	}
	p.idle = append(p.idle, c)
	c.reaper = time.AfterFunc(maxIdle, func() { p.reap(c) })
}

// reap lets a connection go that nobody took in time.
func (p *pool) reap(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.idle {
		if p.idle[i] == c {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			p.leave(c)
			return
		}
	}
}

// leave says goodbye in the background; close waits for it.
func (p *pool) leave(c *connection) { p.wg.Go(c.quit) }

// close lets all connections go.
func (p *pool) close() {
	p.mu.Lock()
	for _, c := range p.idle {
		c.reaper.Stop()
		p.leave(c)
	}
	p.idle = nil
	p.mu.Unlock()
	p.wg.Wait()
}
