package stdout_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pgrelay/internal/config"
	"pgrelay/internal/publishertest"
	"pgrelay/relay"
	"pgrelay/relay/stdout"
)

func TestContract(t *testing.T) {
	t.Parallel()
	publishertest.Run(t, func(t *testing.T, timeout time.Duration) publishertest.Harness {
		out := &output{}
		return publishertest.Harness{
			Publisher: publisher(t, timeout, out),
			Received:  func() []publishertest.Received { return out.received(t) },
			Hang: func(hung func()) {
				released := make(chan struct{})
				t.Cleanup(func() { close(released) })
				out.set(func([]byte) (int, error) { hung(); <-released; return 0, io.ErrClosedPipe })
			},
			Break: func() { out.set(func([]byte) (int, error) { return 0, syscall.ENOSPC }) },
			Bad:   &relay.Message{EventID: "1", Body: "\xff"},
		}
	})
}

func publisher(t *testing.T, timeout time.Duration, w io.Writer) *stdout.Publisher {
	t.Helper()
	p, err := stdout.New(config.Destination{Type: "stdout", Timeout: config.Duration(timeout)}, w)
	require.NoError(t, err)
	return p
}

// output is a writer whose writes a test can take over.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	write func([]byte) (int, error)
}

func (o *output) set(write func([]byte) (int, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write = write
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	write := o.write
	if write == nil {
		defer o.mu.Unlock()
		return o.buf.Write(p)
	}
	o.mu.Unlock()
	return write(p)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) received(t *testing.T) []publishertest.Received {
	t.Helper()
	var list []publishertest.Received
	lines := bufio.NewScanner(bytes.NewBufferString(o.text()))
	for lines.Scan() {
		var l struct {
			Body, Group string
			Attributes  map[string]string
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &l))
		list = append(list, publishertest.Received{Body: l.Body, Group: l.Group, Attributes: l.Attributes})
	}
	return list
}

func numbered(ids ...string) []*relay.Message {
	batch := make([]*relay.Message, len(ids))
	for i, id := range ids {
		batch[i] = &relay.Message{Table: "t", RowID: id, EventID: "e" + id, Kind: "K", Body: "{}"}
	}
	return batch
}

func outcomes(results []relay.Result) []relay.Outcome {
	list := make([]relay.Outcome, len(results))
	for i, r := range results {
		list[i] = r.Outcome
	}
	return list
}

func TestALineHoldsWhatIdentifiesTheMessage(t *testing.T) {
	t.Parallel()
	out := &output{}
	p := publisher(t, time.Minute, out)
	require.NoError(t, p.Open(t.Context()))
	_, fault := p.Publish(t.Context(), []*relay.Message{{
		Table: "public.outbox", RowID: "7", EventID: "e7", Kind: "BOOKED", Group: "g",
		Body: `{"a" : "<&>"}`, Attributes: []relay.Attribute{{Name: "event_id", Value: "e7"}},
	}})
	require.Nil(t, fault)
	require.Equal(t, `{"event_id":"e7","kind":"BOOKED","table":"public.outbox","id":"7","group":"g",`+
		`"attributes":{"event_id":"e7"},"body":"{\"a\" : \"<&>\"}"}`+"\n", out.text())
}

func TestAnyValidTextSurvives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		out := &output{}
		p := publisher(t, time.Minute, out)
		require.NoError(t, p.Open(t.Context()))
		m := &relay.Message{Body: rapid.String().Draw(rt, "body")}
		require.NoError(t, p.Check(m))
		_, fault := p.Publish(t.Context(), []*relay.Message{m})
		require.Nil(t, fault)
		require.Equal(t, m.Body, out.received(t)[0].Body)
	})
}

func TestAWriteThatFailsHalfwayTellsWhichLinesAreOut(t *testing.T) {
	t.Parallel()
	out := &output{}
	p := publisher(t, time.Minute, out)
	require.NoError(t, p.Open(t.Context()))
	out.set(func(b []byte) (int, error) {
		n, _ := out.buf.Write(b[:bytes.IndexByte(b, '\n')+6])
		return n, syscall.ENOSPC
	})
	results, fault := p.Publish(t.Context(), numbered("1", "2", "3"))
	require.Equal(t, "write_failed", fault.Reason)
	require.ErrorIs(t, fault, syscall.ENOSPC)
	require.Equal(t, []relay.Outcome{relay.OutcomeDelivered, relay.OutcomeUnknown, relay.OutcomeBack}, outcomes(results))

	out.set(nil)
	results, fault = p.Publish(t.Context(), numbered("2", "3"))
	require.Nil(t, fault)
	require.Equal(t, []relay.Outcome{relay.OutcomeDelivered, relay.OutcomeDelivered}, outcomes(results))
	lines := bytes.Split([]byte(out.text()), []byte("\n"))
	require.Len(t, lines, 5) // 1, half of 2, 2, 3, and nothing behind the last
	require.True(t, json.Valid(lines[2]), "the line after the torn one stands by itself")
}

func TestAClosedPipeIsAFault(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	t.Cleanup(func() { _ = w.Close() })
	p := publisher(t, time.Minute, w)
	require.NoError(t, p.Open(t.Context()))
	results, fault := p.Publish(t.Context(), numbered("1", "2"))
	require.ErrorIs(t, fault, syscall.EPIPE)
	require.Equal(t, []relay.Outcome{relay.OutcomeBack, relay.OutcomeBack}, outcomes(results))
}

func TestCallsBehindABlockedWriteGoBackWithAFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &output{}
		release := make(chan struct{})
		out.set(func(p []byte) (int, error) { <-release; return len(p), nil })
		p := publisher(t, time.Second, out)
		require.NoError(t, p.Open(t.Context()))

		results, fault := p.Publish(t.Context(), numbered("1"))
		require.Nil(t, fault)
		require.Equal(t, []relay.Outcome{relay.OutcomeUnknown}, outcomes(results))
		require.Equal(t, "timeout", results[0].Reason)

		results, fault = p.Publish(t.Context(), numbered("2"))
		require.Equal(t, "blocked", fault.Reason)
		require.Equal(t, []relay.Outcome{relay.OutcomeBack}, outcomes(results))
		require.Error(t, p.Close(), "a write is under way")

		close(release)
		synctest.Wait()
		require.NoError(t, p.Open(t.Context()))
		results, fault = p.Publish(t.Context(), numbered("3"))
		require.Nil(t, fault)
		require.Equal(t, []relay.Outcome{relay.OutcomeDelivered}, outcomes(results))
		require.NoError(t, p.Close())
	})
}

func TestAWriterThatTakesLessWithoutAnErrorIsNotBelieved(t *testing.T) {
	t.Parallel()
	out := &output{}
	out.set(func([]byte) (int, error) { return 0, nil })
	p := publisher(t, time.Minute, out)
	require.NoError(t, p.Open(t.Context()))
	results, fault := p.Publish(t.Context(), numbered("1"))
	require.ErrorIs(t, fault, io.ErrShortWrite)
	require.Equal(t, []relay.Outcome{relay.OutcomeBack}, outcomes(results))
}

func TestADeadlineIsNeeded(t *testing.T) {
	t.Parallel()
	_, err := stdout.New(config.Destination{}, io.Discard)
	require.ErrorContains(t, err, "timeout")
}
