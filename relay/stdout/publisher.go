package stdout

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// maxLines bounds how many lines one write holds.
const maxLines = 100

// errDeadline is the cause with which a call's own deadline ends its context.
var errDeadline = errors.New("the call's own deadline")

// Publisher writes lines. It is safe for concurrent use.
type Publisher struct {
	w       io.Writer
	timeout time.Duration
	opened  atomic.Bool
	turn    chan struct{} // holds one token while nobody writes
	torn    bool          // the last line has no end; guarded by turn
}

var _ relay.Publisher = (*Publisher)(nil)

// New makes a publisher that writes to w.
func New(d config.Destination, w io.Writer) (*Publisher, error) {
	if d.Timeout <= 0 {
		return nil, errors.New("timeout: must be above zero")
	}
	p := &Publisher{w: w, timeout: time.Duration(d.Timeout), turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p, nil
}

// Open always succeeds: whether a writer works only a write can tell.
func (p *Publisher) Open(context.Context) error {
	p.opened.Store(true)
	return nil
}

// Ordered is true: lines come in the order in which they are sent.
func (p *Publisher) Ordered() bool { return true }

// Limits of one call.
func (p *Publisher) Limits() relay.Limits { return relay.Limits{Messages: maxLines} }

// Size is the body's.
func (p *Publisher) Size(m *relay.Message) int { return len(m.Body) }

// Check refuses what a JSON string cannot hold.
func (p *Publisher) Check(m *relay.Message) error {
	texts := []string{m.Body, m.EventID, m.Kind, m.Group}
	for _, a := range m.Attributes {
		texts = append(texts, a.Name, a.Value)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return &relay.Rejection{Reason: "invalid_utf8", Detail: "the message is not valid UTF-8"}
		}
	}
	return nil
}

// Publish writes the batch's lines at once.
func (p *Publisher) Publish(ctx context.Context, batch []*relay.Message) ([]relay.Result, *relay.Fault) {
	if !p.opened.Load() {
		return back(batch, &relay.Fault{Reason: "not_open", Detail: "the destination is closed"})
	}
	if len(batch) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, errDeadline)
	defer cancel()
	if fault, ok := p.takeTurn(ctx); !ok {
		return back(batch, fault)
	}
	text, ends := encode(batch)
	done := make(chan written, 1)
	go p.write(text, done) // ends with the write, which nothing can interrupt; Close tells if it has not
	select {
	case w := <-done:
		return w.results(ends)
	case <-ctx.Done():
		return cutOff(ctx, len(batch)), nil
	}
}

// Close lets go of the writer, which is the caller's. It cannot end a write that the
// writer is still blocking.
func (p *Publisher) Close() error {
	p.opened.Store(false)
	select {
	case <-p.turn:
		p.turn <- struct{}{}
		return nil
	default:
		return errors.New("closing stdout: a write is still under way")
	}
}

// takeTurn waits for the writes before. Without a turn there is a fault only if the
// caller didn't end the wait.
func (p *Publisher) takeTurn(ctx context.Context) (*relay.Fault, bool) {
	if ctx.Err() == nil {
		select {
		case <-p.turn:
			return nil, true
		case <-ctx.Done():
		}
	}
	if !errors.Is(context.Cause(ctx), errDeadline) {
		return nil, false
	}
	return &relay.Fault{Reason: "blocked", Detail: "an earlier write is still under way: nobody reads the output"}, false
}

func (p *Publisher) write(text []byte, done chan<- written) {
	lead := 0
	if p.torn {
		text, lead = append([]byte{'\n'}, text...), 1
	}
	n, err := p.w.Write(text)
	if n > 0 {
		p.torn = text[n-1] != '\n'
	}
	if n < len(text) && err == nil {
		err = io.ErrShortWrite
	}
	p.turn <- struct{}{}
	done <- written{bytes: n - lead, err: err}
}
