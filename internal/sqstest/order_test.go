package sqstest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pgrelay/internal/sqstest"
)

// model is what a FIFO queue has to look like from outside.
type model struct {
	srv     *sqstest.Server
	sent    int
	waiting map[string][]string // bodies by group, in order
	flying  map[string][]string // received and not deleted
	handles map[string]string
}

func (m *model) ask(t *rapid.T, action string, in map[string]any, out any) {
	in["QueueUrl"] = "q.fifo"
	body, err := json.Marshal(in)
	require.NoError(t, err)
	w := call(m.srv, "AmazonSQS."+action, string(body))
	require.Equal(t, 200, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), out))
}

func (m *model) send(t *rapid.T) {
	var batch []map[string]any
	for range rapid.IntRange(1, 5).Draw(t, "entries") {
		m.sent++
		group, body := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "group"), fmt.Sprint(m.sent)
		batch = append(batch, map[string]any{"Id": body, "MessageBody": group + body, "MessageGroupId": group, "MessageDeduplicationId": body})
		m.waiting[group] = append(m.waiting[group], group+body)
	}
	m.ask(t, "SendMessageBatch", map[string]any{"Entries": batch}, &struct{}{})
}

// receive must bring the head of each group that isn't in flight, in order.
func (m *model) receive(t *rapid.T) {
	var out struct {
		Messages []struct{ Body, ReceiptHandle string }
	}
	n := rapid.IntRange(1, 10).Draw(t, "most")
	m.ask(t, "ReceiveMessage", map[string]any{"MaxNumberOfMessages": n}, &out)
	available := 0
	locked := map[string]bool{}
	for group, bodies := range m.waiting {
		if locked[group] = len(m.flying[group]) > 0; !locked[group] {
			available += len(bodies)
		}
	}
	require.Len(t, out.Messages, min(n, available))
	for _, got := range out.Messages {
		group := got.Body[:1]
		require.False(t, locked[group], "group %s is in flight", group)
		require.Equal(t, m.waiting[group][0], got.Body)
		m.waiting[group] = m.waiting[group][1:]
		m.flying[group] = append(m.flying[group], got.Body)
		m.handles[got.Body] = got.ReceiptHandle
	}
}

func (m *model) delete(t *rapid.T) {
	var bodies []string
	for _, flying := range m.flying {
		bodies = append(bodies, flying...)
	}
	if len(bodies) == 0 {
		return
	}
	slices.Sort(bodies)
	body := rapid.SampledFrom(bodies).Draw(t, "message")
	m.ask(t, "DeleteMessage", map[string]any{"ReceiptHandle": m.handles[body]}, &struct{}{})
	group := body[:1]
	m.flying[group] = slices.DeleteFunc(m.flying[group], func(b string) bool { return b == body })
}

// timeOut brings back what is in flight, before what waits.
func (m *model) timeOut(*rapid.T) {
	m.srv.Advance(time.Minute)
	for group, bodies := range m.flying {
		m.waiting[group] = append(bodies, m.waiting[group]...)
		m.flying[group] = nil
	}
}

func TestAGroupKeepsItsOrderWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{srv: sqstest.New(), waiting: map[string][]string{}, flying: map[string][]string{}, handles: map[string]string{}}
		m.srv.CreateQueue("q.fifo", nil)
		t.Repeat(map[string]func(*rapid.T){"send": m.send, "receive": m.receive, "delete": m.delete, "time out": m.timeOut})
		require.Len(t, m.srv.Messages("q.fifo"), m.sent)
	})
}

// BenchmarkSend is the server alone: batches of ten messages of 200 bytes, without a socket.
func BenchmarkSend(b *testing.B) {
	for _, queue := range []string{"q", "q.fifo"} {
		b.Run(queue, func(b *testing.B) {
			srv := sqstest.New(sqstest.WithHistory(1000))
			srv.CreateQueue(queue, nil)
			sent := 0
			for b.Loop() {
				var entries []string
				for i := range 10 {
					sent++
					entry := fmt.Sprintf(`{"Id":"%d","MessageBody":"%s","MessageAttributes":{"event_id":{"DataType":"String","StringValue":"%d"}}`, i, strings.Repeat("x", 200), sent)
					if queue == "q.fifo" {
						entry += fmt.Sprintf(`,"MessageGroupId":"%d","MessageDeduplicationId":"%d"`, sent%97, sent)
					}
					entries = append(entries, entry+"}")
				}
				w := call(srv, "AmazonSQS.SendMessageBatch", `{"QueueUrl":"`+queue+`","Entries":[`+strings.Join(entries, ",")+`]}`)
				require.Equal(b, 200, w.Code)
			}
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
