package smtp

import (
	"bytes"
	"context"
	"encoding/json"
	"net/mail"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pgrelay/internal/config"
	"pgrelay/internal/smtptest"
	"pgrelay/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// ample never runs out in a test that works.
	ample = time.Minute
	ada   = "ada@example.com"
	bob   = "bob@example.com"
	// secret is in what is sent, and must be in no result and no fault.
	secret = "Zr7-only-for-the-receiver"
)

// destination is a server on this machine that wants neither TLS nor login.
func destination(s *smtptest.Server) config.Destination {
	return config.Destination{
		Type: config.TypeSMTP, Host: s.Host(), Port: s.Port(), TLS: config.TLSNone, From: "Calendar <calendar@example.org>",
		Concurrency: 4, Timeout: config.Duration(ample),
	}
}

// unopened makes a publisher that the test closes.
func unopened(t *testing.T, s *smtptest.Server, d config.Destination) *Publisher {
	t.Helper()
	p, err := New(d, Options{Roots: s.Roots})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// start makes an open publisher with a server of its own.
func start(t *testing.T, extensions ...string) (*Publisher, *smtptest.Server) {
	t.Helper()
	s := smtptest.Start(t, smtptest.Options{Extensions: extensions})
	p := unopened(t, s, destination(s))
	require.NoError(t, p.Open(t.Context()))
	return p, s
}

// doc is a mail as a producer writes it.
type doc map[string]any

func (d doc) String() string {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// with is a good mail with some keys set otherwise; nil leaves a key out.
func with(changes doc) doc {
	d := doc{"to": []string{"Ada <" + ada + ">", bob}, "subject": "Booked " + secret, "text": "See you. " + secret}
	for key, value := range changes {
		if d[key] = value; value == nil {
			delete(d, key)
		}
	}
	return d
}

// mailTo is a mail for one recipient.
func mailTo(d doc, recipient string) *relay.Message {
	return &relay.Message{EventID: "event-1", Body: d.String(), Recipient: recipient}
}

func publish(t *testing.T, p *Publisher, m *relay.Message) (relay.Result, *relay.Fault) {
	t.Helper()
	return publishIn(t.Context(), t, p, m)
}

func publishIn(ctx context.Context, t *testing.T, p *Publisher, m *relay.Message) (relay.Result, *relay.Fault) {
	t.Helper()
	results, fault := p.Publish(ctx, []*relay.Message{m})
	require.Len(t, results, 1)
	require.NotContains(t, results[0].Detail, secret)
	require.NotContains(t, results[0].Detail, m.Recipient)
	if fault != nil {
		require.NotContains(t, fault.Detail, secret)
		require.NotContains(t, fault.Detail, m.Recipient)
	}
	return results[0], fault
}

func requireDelivered(t *testing.T, p *Publisher, m *relay.Message) {
	t.Helper()
	result, fault := publish(t, p, m)
	require.Nil(t, fault)
	require.Equal(t, relay.Result{Outcome: relay.OutcomeDelivered}, result)
}

// read parses a mail as it arrived, by the standard library, which has not written it.
func read(t *testing.T, data []byte) *mail.Message {
	t.Helper()
	for line := range bytes.SplitSeq(data, []byte("\r\n")) {
		require.LessOrEqual(t, len(line), 998)
		require.False(t, bytes.ContainsAny(line, "\r\n"), "a line ends by CR LF alone: %q", line)
	}
	m, err := mail.ReadMessage(bytes.NewReader(data))
	require.NoError(t, err)
	return m
}
