package sqstest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server is an SQS of its own. It is safe for concurrent use.
type Server struct {
	url    string
	clock  func() time.Time
	moved  atomic.Int64 // nanoseconds by which Advance moved the clock
	keep   int
	closed chan struct{}
	once   sync.Once

	mu       sync.RWMutex
	queues   map[string]*queue
	journals map[string]*journal  // by queue name
	deleted  map[string]time.Time // queues, by the time of their deletion

	calls callLog
	hook  atomic.Pointer[func(Request) Fault]
}

// Option changes a Server before it starts.
type Option func(*Server)

// WithClock sets the clock; time.Now is the default. Time spent in long polls and in
// delays of faults is real all the same.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.clock = now } }

// WithURL sets what queue URLs begin with: where the server can be reached.
func WithURL(url string) Option {
	return func(s *Server) { s.url = strings.TrimSuffix(url, "/") }
}

// WithHistory bounds what Messages (of each queue) and Calls keep to at least the last n
// and less than twice as many.
func WithHistory(n int) Option { return func(s *Server) { s.keep = n } }

// New makes a server without queues.
func New(opts ...Option) *Server {
	s := &Server{
		url: "http://localhost", clock: time.Now, closed: make(chan struct{}),
		queues: map[string]*queue{}, journals: map[string]*journal{}, deleted: map[string]time.Time{},
		calls: callLog{counts: map[string]int{}},
	}
	for _, o := range opts {
		o(s)
	}
	s.calls.keep = s.keep
	return s
}

// Close ends long polls and delays that are under way. It is what lets an http.Server
// around it shut down at once.
func (s *Server) Close() { s.once.Do(func() { close(s.closed) }) }

// Now is the server's time.
func (s *Server) Now() time.Time { return s.clock().Add(time.Duration(s.moved.Load())) }

// Advance moves the server's clock: deduplication, delays, visibility, retention.
func (s *Server) Advance(d time.Duration) {
	s.moved.Add(int64(d))
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, q := range s.queues {
		q.mu.Lock()
		q.changed.fire()
		q.mu.Unlock()
	}
}

// CreateQueue makes a queue, or leaves the one of that name as it is, and returns its URL.
// A name that ends in .fifo makes a FIFO queue. It panics on a name or attribute that AWS refuses.
func (s *Server) CreateQueue(name string, attrs map[string]string) string {
	all := withType(name, attrs)
	if err := checkNewQueue(name, all); err != nil {
		panic(fmt.Sprintf("sqstest: creating queue %s: %v", name, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[name] == nil {
		s.addQueue(name, all)
	}
	return s.queueURL(name)
}

// CheckQueueName says whether CreateQueue takes a name.
func CheckQueueName(name string) error { return checkNewQueue(name, withType(name, nil)) }

// withType adds the attribute that a FIFO queue needs.
func withType(name string, attrs map[string]string) map[string]string {
	all := map[string]string{}
	if strings.HasSuffix(name, ".fifo") {
		all["FifoQueue"] = "true"
	}
	maps.Copy(all, attrs)
	return all
}

// DeleteQueue removes a queue with what waits in it. Messages still tells what it
// accepted, and CreateQueue may make it anew at once.
func (s *Server) DeleteQueue(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, name)
}

// Messages returns all that a queue ever accepted, in order, received or not. Sends that
// deduplication swallowed are not in it.
func (s *Server) Messages(name string) []Message { return s.journal(name).from(0) }

// MessagesFrom returns what a queue accepted after its first n messages.
func (s *Server) MessagesFrom(name string, n int) []Message { return s.journal(name).from(n) }

// Count tells how many messages a queue ever accepted.
func (s *Server) Count(name string) int {
	n, _ := s.journal(name).count()
	return n
}

// Deduplicated tells how many sends to a FIFO queue the deduplication window swallowed.
func (s *Server) Deduplicated(name string) int { return s.journal(name).swallowed() }

// Wait returns once a queue has accepted n messages in all; the queue need not exist
// yet. It fails with the cause of the end of ctx, and when the server closes.
func (s *Server) Wait(ctx context.Context, name string, n int) error {
	j := s.journal(name)
	for {
		have, grown := j.count()
		if have >= n {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return fmt.Errorf("waiting for message %d of %s, having %d: %w", n, name, have, context.Cause(ctx))
		case <-s.closed:
			return fmt.Errorf("waiting for message %d of %s, having %d: %w", n, name, have, net.ErrClosed)
		}
	}
}

// addQueue needs s.mu.
func (s *Server) addQueue(name string, attrs map[string]string) {
	delete(s.deleted, name)
	s.queues[name] = newQueue(name, s.Now(), attrs, s.journalLocked(name))
}

func (s *Server) journal(name string) *journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journalLocked(name)
}

func (s *Server) journalLocked(name string) *journal {
	j := s.journals[name]
	if j == nil {
		j = &journal{keep: s.keep}
		s.journals[name] = j
	}
	return j
}

func (s *Server) queueURL(name string) string { return s.url + "/" + account + "/" + name }

// find returns the queue that a URL names by its last part; host and account don't matter.
func (s *Server) find(url string) (*queue, error) {
	if url == "" {
		return nil, missingParameter("QueueUrl")
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if q := s.queues[nameOf(url)]; q != nil {
		return q, nil
	}
	return nil, refuse("QueueDoesNotExist", "The specified queue does not exist.")
}

func nameOf(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }
