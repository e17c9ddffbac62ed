package publishertest

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/relay"
)

// Harness is one publisher and its destination, which nobody else uses.
type Harness struct {
	// Publisher is not open yet.
	Publisher relay.Publisher
	// Received tells all that arrived, in its order of arrival.
	Received func() []Received
	// Hang has the destination answer no more, until the test ends. Each call that was sent and waits for its answer calls hung.
	Hang func(hung func())
	// Dress, if set, makes a message into one that the destination takes.
	Dress func(*relay.Message)
	// Break has the destination refuse or drop every call.
	Break func()
	// Bad is a message that Check refuses.
	Bad *relay.Message
}

// Received is one message as it arrived.
type Received struct {
	Body       string
	Group      string
	Attributes map[string]string
}

// Start makes a harness whose publisher has the given deadline per call.
type Start func(t *testing.T, timeout time.Duration) Harness

// secret is in every body and attribute value, and must be in no error.
const secret = "Zr7-only-for-the-receiver"

// awkward are the bodies that tend to be changed on the way.
var awkward = []string{
	`{"n": 123456789012345678901234567890.10, "b":1,"a" : 2}`,
	`<tag attr="x">&amp; ' \ \\ \" \u0041 %41 +`,
	"tab\there, line\nfeed, carriage\rreturn, delete \x7f",
	"é ü 漢字 \U0001F680 \u2028\u2029 \uFFFD \u0085 \u00a0",
	" leading and trailing ", "0", "null", `"`,
}

// message makes the i-th message; every one differs from all others.
func message(i int) *relay.Message {
	return &relay.Message{
		Table: "public.outbox", RowID: fmt.Sprint(i), EventID: fmt.Sprintf("event-%d", i), Kind: "BOOKED",
		Body:       fmt.Sprintf("%d %s %s", i, secret, awkward[i%len(awkward)]),
		Attributes: []relay.Attribute{{Name: "event_id", Value: fmt.Sprintf("event-%d", i)}, {Name: "note", Value: secret + "-ü"}},
		Group:      fmt.Sprintf("group-%d", i), DedupID: fmt.Sprintf("event-%d", i),
	}
}

func (h Harness) message(i int) *relay.Message {
	m := message(i)
	if h.Dress != nil {
		h.Dress(m)
	}
	return m
}

func (h Harness) messages(from, n int) []*relay.Message {
	batch := make([]*relay.Message, n)
	for i := range batch {
		batch[i] = h.message(from + i)
	}
	return batch
}

// batch is of several messages if a call takes them.
func (h Harness) batch(n int) []*relay.Message {
	return h.messages(0, min(n, h.Publisher.Limits().Messages))
}

func asReceived(m *relay.Message) Received {
	r := Received{Body: m.Body, Group: m.Group, Attributes: map[string]string{}}
	for _, a := range m.Attributes {
		r.Attributes[a.Name] = a.Value
	}
	return r
}

var token = regexp.MustCompile(`^[a-z0-9_]+$`)

// requireWords holds a reason and a detail to what a metric and a person need, and
// to what neither may see.
func requireWords(t *testing.T, reason, detail string) {
	t.Helper()
	require.Regexp(t, token, reason)
	require.NotEmpty(t, detail)
	require.NotContains(t, detail, secret)
	require.NotContains(t, detail, "\n")
}

// requireFault checks a fault and all that it wraps.
func requireFault(t *testing.T, f *relay.Fault) {
	t.Helper()
	require.NotNil(t, f)
	requireWords(t, f.Reason, f.Detail)
	for err := error(f); err != nil; err = errors.Unwrap(err) {
		require.False(t, strings.Contains(err.Error(), secret), "an error holds a part of the payload")
	}
}

// requireOutcomes checks that there is one result per message, of one of the outcomes.
func requireOutcomes(t *testing.T, n int, results []relay.Result, allowed ...relay.Outcome) {
	t.Helper()
	require.Len(t, results, n)
	for _, r := range results {
		require.Contains(t, allowed, r.Outcome, "%s: %s", r.Reason, r.Detail)
		if r.Outcome != relay.OutcomeDelivered {
			requireWords(t, r.Reason, r.Detail)
		}
	}
}
