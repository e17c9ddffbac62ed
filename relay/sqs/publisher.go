package sqs

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/rs/zerolog"

	"pgrelay/internal/config"
	"pgrelay/relay"
)

// Options is what a destination's configuration does not say.
type Options struct {
	// Credentials sign the requests; nil is the SDK's default chain.
	Credentials aws.CredentialsProvider
	// Log gets what Open cannot find out; its zero value is silent.
	Log zerolog.Logger
}

// Publisher sends to one queue. It is safe for concurrent use.
type Publisher struct {
	target    target
	fifo      bool
	timeout   time.Duration
	client    *sqs.Client
	keys      *keyring
	transport *http.Transport
	log       zerolog.Logger
	queue     atomic.Pointer[queue] // nil while not open
}

// queue is what Open learnt.
type queue struct {
	url      string
	maxBytes int
}

var _ relay.Publisher = (*Publisher)(nil)

// New works out where the queue is and refuses a configuration that contradicts
// itself. It calls nobody.
func New(ctx context.Context, d config.Destination, o Options) (*Publisher, error) {
	if d.Timeout <= 0 {
		return nil, errors.New("timeout: must be above zero")
	}
	if d.Concurrency <= 0 {
		return nil, errors.New("concurrency: must be above zero")
	}
	t, err := parseTarget(d)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		target:  t,
		fifo:    strings.HasSuffix(t.name, ".fifo"),
		timeout: time.Duration(d.Timeout),
		log:     o.Log,
	}
	if err := p.connect(ctx, d.Concurrency, o.Credentials); err != nil {
		return nil, err
	}
	return p, nil
}

// Ordered is true for a FIFO queue, which SQS tells by its name.
func (p *Publisher) Ordered() bool { return p.fifo }

// Limits of one SendMessageBatch.
func (p *Publisher) Limits() relay.Limits {
	return relay.Limits{Messages: maxEntries, Bytes: maxBytes}
}

// Close frees the connections.
func (p *Publisher) Close() error {
	p.queue.Store(nil)
	p.transport.CloseIdleConnections()
	return nil
}
