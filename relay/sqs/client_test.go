package sqs

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/sqstest"
	"pgrelay/relay"
)

// serve starts a server of the test's own making and opens a publisher on it.
func serve(t *testing.T, change func(*httptest.Server)) (*Publisher, *sqstest.Server, *httptest.Server) {
	t.Helper()
	srv := sqstest.New()
	srv.CreateQueue(plainQueue, nil)
	web := httptest.NewUnstartedServer(srv)
	if change != nil {
		change(web)
	}
	web.Start()
	t.Cleanup(func() { srv.Close(); web.Close() })
	p := unopened(t, destination(web.URL, plainQueue))
	require.NoError(t, p.Open(t.Context()))
	return p, srv, web
}

func TestConnectionsAreKeptAndNeverMoreThanTheCalls(t *testing.T) {
	t.Parallel()
	var opened, active atomic.Int32
	var mu sync.Mutex
	var most int32
	p, _, _ := serve(t, func(web *httptest.Server) {
		next := web.Config.Handler
		web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := active.Add(1)
			defer active.Add(-1)
			mu.Lock()
			most = max(most, now)
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
		web.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				opened.Add(1)
			}
		}
	})
	for range 10 {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() { _, _ = p.Publish(t.Context(), numbered(1)) })
		}
		wg.Wait()
	}
	require.LessOrEqual(t, most, int32(8), "64 calls at once over the 8 connections that concurrency allows")
	// A starved machine may lose a connection now and then; without keeping there would be 640.
	require.LessOrEqual(t, opened.Load(), int32(16))
}

func TestAServerThatIsGoneIsAFaultAndNothingWasSent(t *testing.T) {
	t.Parallel()
	p, srv, web := serve(t, nil)
	srv.Close()
	web.Close()
	p.transport.CloseIdleConnections() // a write to one of these could still succeed
	results, fault := publish(t, p, numbered(2))
	require.Equal(t, "unreachable", fault.Reason)
	require.ErrorIs(t, fault, syscall.ECONNREFUSED)
	require.Contains(t, fault.Detail, "connection refused")
	require.Equal(t, all(2, relay.OutcomeBack, nil), outcomes(results))
}

// stuckDial has every connection that is yet to be made take for ever.
func stuckDial(p *Publisher) {
	p.transport.CloseIdleConnections()
	p.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func TestAnAddressThatSwallowsPacketsIsUnreachableAndNothingWasSent(t *testing.T) {
	t.Parallel()
	p := unopened(t, destination("http://127.0.0.1:1", plainQueue))
	p.queue.Store(&queue{url: "http://127.0.0.1:1/0/q", maxBytes: maxBytes})
	p.timeout = 50 * time.Millisecond
	stuckDial(p)
	results, fault := publish(t, p, numbered(2))
	require.Equal(t, "unreachable", fault.Reason)
	require.Contains(t, fault.Detail, "no connection within 50ms")
	require.Equal(t, all(2, relay.OutcomeBack, nil), outcomes(results))
}

func TestACallerThatLeavesBeforeThereIsAConnectionBlamesNobody(t *testing.T) {
	t.Parallel()
	p := unopened(t, destination("http://127.0.0.1:1", plainQueue))
	p.queue.Store(&queue{url: "http://127.0.0.1:1/0/q", maxBytes: maxBytes})
	stuckDial(p)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	results, fault := p.Publish(ctx, numbered(2))
	require.Nil(t, fault)
	require.Equal(t, all(2, relay.OutcomeBack, nil), outcomes(results))
}

func TestACertificateThatNobodyTrustsIsAFault(t *testing.T) {
	t.Parallel()
	srv := sqstest.New()
	srv.CreateQueue(plainQueue, nil)
	web := httptest.NewUnstartedServer(srv)
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	t.Cleanup(func() { srv.Close(); web.Close() })
	fault := openFault(t, unopened(t, destination(web.URL, plainQueue)))
	require.Equal(t, "unreachable", fault.Reason)
	require.Contains(t, fault.Detail, "certificate")
	require.Zero(t, srv.CallCount("GetQueueUrl"))
}

func TestASignedRequestFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	t.Cleanup(elsewhere.Close)
	web := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(web.Close)
	fault := openFault(t, unopened(t, destination(web.URL, plainQueue)))
	require.Equal(t, "refused", fault.Reason)
	require.Contains(t, fault.Detail, "HTTP 307")
	require.False(t, reached.Load())
}

// answering opens a publisher whose batches get the given answer.
func answering(t *testing.T, status int, answer string) *Publisher {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(web.Close)
	p := unopened(t, destination(web.URL, plainQueue))
	p.queue.Store(&queue{url: web.URL + "/0/bookings", maxBytes: maxBytes})
	return p
}

func TestOddAnswers(t *testing.T) {
	t.Parallel()
	const D, U, B = relay.OutcomeDelivered, relay.OutcomeUnknown, relay.OutcomeBack
	for _, c := range []struct {
		status int
		answer string
		want   []relay.Outcome
	}{
		{200, `{"Successful":[{"Id":"0"},{"Id":"1"}],"Failed":[{"Id":"1","Code":"InternalError","SenderFault":false}]}`, []relay.Outcome{D, U}},
		{200, `{"Successful":[{"Id":"0"},{"Id":"7"},{"Id":"-1"},{"Id":"x"},{}],"Failed":[{"Id":"9","Code":"Throttling"}]}`, []relay.Outcome{D, U}},
		{200, `{}`, []relay.Outcome{U, U}},
		{200, ``, []relay.Outcome{U, U}},
		{200, `{"Successful":[{"Id":"0"`, []relay.Outcome{U, U}},
		{200, `<html>please log in</html>`, []relay.Outcome{U, U}},
		{503, `<html>no backend</html>`, []relay.Outcome{B, B}},
		{400, `<html>no</html>`, []relay.Outcome{B, B}},
	} {
		results, _ := publish(t, answering(t, c.status, c.answer), numbered(2))
		require.Equal(t, c.want, outcomes(results), c.answer)
	}
}

func TestARequestTooLargeForAProxyIsSplit(t *testing.T) {
	t.Parallel()
	p := answering(t, http.StatusRequestEntityTooLarge, "")
	results, fault := publish(t, p, numbered(2))
	require.Nil(t, fault)
	require.Equal(t, all(2, relay.OutcomeRejected, nil), outcomes(results))
	require.Equal(t, "message_too_large", results[0].Reason)
}

func TestWordsOfAWSThatMayHoldSecretsAreNotRepeated(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	const leak = "x-amz-security-token:SESSIONTOKEN"
	for code, shown := range map[string]bool{"SignatureDoesNotMatch": false, "NeverHeardOf": false, "Throttling": false, "AccessDenied": true, "KMS.DisabledException": true} {
		ts.SetFault(onSend(sqstest.Fault{Code: code, Message: "line one\n" + leak}))
		_, fault := publish(t, p, numbered(1))
		if shown {
			require.Contains(t, fault.Detail, "line one x-amz", code)
		} else {
			require.NotContains(t, fault.Detail, leak, code)
		}
		require.NotContains(t, fault.Detail, "\n")
		require.NoError(t, fault.Err, "what the library wrote could hold anything")
	}
}

// counted gives out keys and counts.
type counted struct {
	n   atomic.Int32
	err error
}

func (c *counted) Retrieve(context.Context) (aws.Credentials, error) {
	c.n.Add(1)
	return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET"}, c.err
}

func withKeys(t *testing.T, url string, keys aws.CredentialsProvider) *Publisher {
	t.Helper()
	p, err := New(t.Context(), destination(url, plainQueue), Options{Credentials: keys})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestAnExpiredTokenIsFetchedAnew(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	ts.CreateQueue(plainQueue, nil)
	keys := &counted{}
	p := withKeys(t, ts.URL, keys)
	require.NoError(t, p.Open(t.Context()))
	require.EqualValues(t, 1, keys.n.Load(), "credentials are cached")

	ts.SetFault(onSend(sqstest.Fault{Code: "ExpiredTokenException"}))
	results, fault := publish(t, p, numbered(2))
	require.Equal(t, "credentials_expired", fault.Reason)
	require.Equal(t, all(2, relay.OutcomeBack, nil), outcomes(results))

	ts.SetFault(nil)
	require.NoError(t, p.Open(t.Context()))
	require.EqualValues(t, 2, keys.n.Load())
}

func TestKeysThatCannotBeHadAreAFault(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	p := withKeys(t, ts.URL, &counted{err: errors.New("role says SECRETTOKEN")})
	fault := openFault(t, p)
	require.Equal(t, "credentials", fault.Reason)
	require.Contains(t, fault.Detail, "AWS_ACCESS_KEY_ID")
	require.NotContains(t, fault.Detail, "SECRETTOKEN")
	require.Empty(t, ts.Calls(), "nothing is sent unsigned")
}

// bareEnvironment takes away everything that the SDK might find.
func bareEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS", "AWS_CA_BUNDLE",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
}

func TestNoKeysAreInventedForALocalEndpoint(t *testing.T) {
	bareEnvironment(t)
	ts := sqstest.Start(t)
	ts.CreateQueue(plainQueue, nil)
	p := withKeys(t, ts.URL, nil)
	fault := openFault(t, p)
	require.Equal(t, "credentials", fault.Reason)
	require.Contains(t, fault.Detail, "a local SQS takes any value")
	require.Empty(t, ts.Calls())
}

func TestTheRegionComesFromTheEnvironmentOrIsAskedFor(t *testing.T) {
	bareEnvironment(t)
	d := destination("http://127.0.0.1:1", plainQueue)
	d.Region = ""
	_, err := New(t.Context(), d, testKeys)
	require.ErrorContains(t, err, "region: is missing")
	t.Setenv("AWS_REGION", "eu-north-1")
	p := unopened(t, d)
	require.Equal(t, "eu-north-1", p.client.Options().Region)
}

func TestTheSDKsRetriesStayOffWhateverTheEnvironmentSays(t *testing.T) {
	bareEnvironment(t)
	t.Setenv("AWS_MAX_ATTEMPTS", "7")
	t.Setenv("AWS_RETRY_MODE", "adaptive")
	p, ts := start(t, plainQueue)
	ts.SetFault(onSend(sqstest.Fault{Status: 503}))
	_, _ = publish(t, p, numbered(1))
	require.Equal(t, 1, ts.CallCount("SendMessageBatch"))
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*config.Destination){
		"timeout:":     func(d *config.Destination) { d.Timeout = 0 },
		"concurrency:": func(d *config.Destination) { d.Concurrency = 0 },
		"queue:":       func(d *config.Destination) { d.Queue = "" },
	} {
		d := destination("http://127.0.0.1:1", plainQueue)
		change(&d)
		_, err := New(t.Context(), d, testKeys)
		require.ErrorContains(t, err, want)
	}
}
