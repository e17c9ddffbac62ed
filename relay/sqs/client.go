package sqs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/logging"
)

// dialTimeout leaves an unreachable address to the next try before the call's own
// deadline has run out.
const dialTimeout = 10 * time.Second

// errDeadline is the cause with which a call's own deadline ends its context.
var errDeadline = errors.New("the call's own deadline")

// connect builds the SDK client: no retries of its own, no log, no checksum errors
// that would hide which entries were stored, and a transport that keeps as many
// connections as there are calls.
func (p *Publisher) connect(ctx context.Context, concurrency int, keys aws.CredentialsProvider) error {
	load := []func(*awsconfig.LoadOptions) error{awsconfig.WithLogger(logging.Nop{})}
	if p.target.region != "" {
		load = append(load, awsconfig.WithRegion(p.target.region))
	}
	if keys != nil {
		load = append(load, awsconfig.WithCredentialsProvider(keys))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return fmt.Errorf("loading the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return errors.New("region: is missing; set it, or AWS_REGION, or give the queue's ARN")
	}
	p.target.region = cfg.Region
	p.transport = newTransport(cfg.HTTPClient, concurrency)
	p.keys = &keyring{cfg.Credentials}
	p.client = sqs.NewFromConfig(cfg, func(o *sqs.Options) {
		if p.target.endpoint != "" {
			o.BaseEndpoint = aws.String(p.target.endpoint)
		}
		o.Credentials = p.keys
		o.Retryer = aws.NopRetryer{}
		o.RetryMaxAttempts = 0
		o.ClientLogMode = 0
		o.DisableMessageChecksumValidation = true
		o.HTTPClient = sender{&http.Client{
			Transport:     p.transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
	})
	return nil
}

// newTransport starts from the SDK's, which has read AWS_CA_BUNDLE and the proxies.
func newTransport(client aws.HTTPClient, concurrency int) *http.Transport {
	base, ok := client.(*awshttp.BuildableClient)
	if !ok {
		base = awshttp.NewBuildableClient()
	}
	t := base.WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout }).GetTransport()
	t.MaxIdleConns = 0 // no limit beside the one per host
	t.MaxIdleConnsPerHost = concurrency
	t.MaxConnsPerHost = concurrency
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// sender gives the transport a body of its own. The SDK closes its body as soon as
// there is an answer, which with a quick server is before the transport has seen the
// body's end; the transport then drops the connection, and now and then the answer with it. A
// body that can be had again also lets the transport dial anew when it finds an idle
// connection closed and has written nothing.
type sender struct{ client *http.Client }

// Do implements sqs.HTTPClient.
func (s sender) Do(req *http.Request) (*http.Response, error) {
	own := *req
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		own.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		own.Body, _ = own.GetBody()
	}
	return s.client.Do(&own)
}

// deadline bounds one call.
func (p *Publisher) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.timeout, errDeadline)
}

// watch notes in sent when a request gets a connection: before that nothing can have
// reached SQS, after it anything may have.
func watch(ctx context.Context, sent *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
}

// keyring marks errors in getting credentials, which the SDK wraps like any other.
type keyring struct{ aws.CredentialsProvider }

type keyError struct{ error }

func (e keyError) Unwrap() error { return e.error }

// Retrieve implements aws.CredentialsProvider.
func (k *keyring) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := k.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return c, keyError{err}
	}
	return c, nil
}

// forget has the next call fetch credentials anew.
func (k *keyring) forget() {
	if cache, ok := k.CredentialsProvider.(*aws.CredentialsCache); ok {
		cache.Invalidate()
	}
}
