package sqs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pgrelay/internal/sqstest"
	"pgrelay/relay"
)

func attrs(n int) []relay.Attribute {
	list := make([]relay.Attribute, n)
	for i := range list {
		list[i] = relay.Attribute{Name: "name-" + string(rune('a'+i)), Value: "v"}
	}
	return list
}

// good is a message that both kinds of queue take.
func good(change func(*relay.Message)) *relay.Message {
	m := &relay.Message{Body: "{}", Group: "g", DedupID: "d"}
	change(m)
	return m
}

func TestMessagesThatSQSWouldNeverTakeAreRefused(t *testing.T) {
	t.Parallel()
	onStandard, _ := start(t, plainQueue)
	onFIFO, _ := start(t, fifoQueue)
	for _, c := range []struct {
		p              *Publisher
		reason, detail string
		m              *relay.Message
	}{
		{onStandard, "empty_body", "empty", good(func(m *relay.Message) { m.Body = "" })},
		{onStandard, "message_too_large", "has 1048577 bytes with its attributes; the queue takes 1048576", good(func(m *relay.Message) { m.Body = strings.Repeat("x", maxBytes+1) })},
		{onStandard, "invalid_characters", "U+0000 at byte 3", good(func(m *relay.Message) { m.Body = "ab\n\x00" })},
		{onStandard, "invalid_characters", "U+001F at byte 0", good(func(m *relay.Message) { m.Body = "\x1f" })},
		{onStandard, "invalid_characters", "U+FFFE at byte 4", good(func(m *relay.Message) { m.Body = "\U0001F680\uFFFE" })},
		{onStandard, "invalid_characters", "attribute a has the character U+FFFF at byte 1", good(func(m *relay.Message) { m.Attributes = []relay.Attribute{{Name: "a", Value: "x\uFFFF"}} })},
		{onStandard, "invalid_utf8", "at byte 2", good(func(m *relay.Message) { m.Body = "é\xff" })},
		{onStandard, "too_many_attributes", "11 attributes", good(func(m *relay.Message) { m.Attributes = attrs(11) })},
		{onStandard, "empty_attribute", "attribute a ", good(func(m *relay.Message) { m.Attributes = []relay.Attribute{{Name: "a"}} })},
		{onStandard, "duplicate_attribute", "two attributes a", good(func(m *relay.Message) {
			m.Attributes = []relay.Attribute{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}}
		})},
		{onStandard, "invalid_group", "has 129 bytes", good(func(m *relay.Message) { m.Group = strings.Repeat("g", 129) })},
		{onStandard, "invalid_group", "at byte 1", good(func(m *relay.Message) { m.Group = "a b" })},
		{onStandard, "invalid_delay", "15m1s", good(func(m *relay.Message) { m.Delay = 901 * time.Second })},
		{onStandard, "invalid_delay", "-1s", good(func(m *relay.Message) { m.Delay = -time.Second })},
		{onFIFO, "invalid_group", "is empty", good(func(m *relay.Message) { m.Group = "" })},
		{onFIFO, "invalid_group", "non-ASCII", good(func(m *relay.Message) { m.Group = "é" })},
		{onFIFO, "invalid_dedup_id", "is empty", good(func(m *relay.Message) { m.DedupID = "" })},
		{onFIFO, "invalid_dedup_id", "at byte 0", good(func(m *relay.Message) { m.DedupID = "\x7f" })},
		{onFIFO, "delay_on_fifo", "whole queues", good(func(m *relay.Message) { m.Delay = time.Second })},
	} {
		var r *relay.Rejection
		require.ErrorAs(t, c.p.Check(c.m), &r, "%s %s", c.reason, c.detail)
		require.Equal(t, c.reason, r.Reason)
		require.Contains(t, r.Detail, c.detail)
	}
}

func TestAttributeNames(t *testing.T) {
	t.Parallel()
	p, _ := start(t, plainQueue)
	for _, name := range []string{"a", "A-b_c.9", strings.Repeat("n", 256), "awsome", "amazonia"} {
		require.NoError(t, p.Check(good(func(m *relay.Message) { m.Attributes = []relay.Attribute{{Name: name, Value: "v"}} })), name)
	}
	for _, name := range []string{"", "a b", "é", ".a", "a.", "a..b", "AWS.x", "aws.x", "Amazon.x", "aMaZoN.x", strings.Repeat("n", 257), "a\n"} {
		var r *relay.Rejection
		err := p.Check(good(func(m *relay.Message) { m.Attributes = []relay.Attribute{{Name: name, Value: "v"}} }))
		require.ErrorAs(t, err, &r, name)
		require.Equal(t, "invalid_attribute_name", r.Reason)
	}
}

func TestGoodMessagesPass(t *testing.T) {
	t.Parallel()
	onStandard, _ := start(t, plainQueue)
	onFIFO, _ := start(t, fifoQueue)
	require.NoError(t, onStandard.Check(&relay.Message{Body: "\t\n\r \u0085\uD7FF\uE000\uFFFD\U00010000\U0010FFFF", Delay: maxDelay, Attributes: attrs(10)}))
	require.NoError(t, onFIFO.Check(&relay.Message{Body: "x", Group: strings.Repeat("!", 128), DedupID: strings.Repeat("~", 128)}))
}

// TestCheckAgreesWithSQS sends whatever comes, checked or not.
func TestCheckAgreesWithSQS(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{plainQueue, fifoQueue} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			ts := sqstest.Start(t)
			ts.CreateQueue(queue, map[string]string{"MaximumMessageSize": "1024"})
			p := unopened(t, destination(ts.URL, queue))
			require.NoError(t, p.Open(t.Context()))
			text := rapid.OneOf(rapid.StringN(0, 8, -1), rapid.StringMatching(`[a-z.]{1,5}`), rapid.SampledFrom([]string{"", "\x01", "\uFFFE", "a b"}))
			rapid.Check(t, func(rt *rapid.T) {
				m := &relay.Message{
					Body:    strings.Repeat(text.Draw(rt, "body"), rapid.SampledFrom([]int{1, 1, 200}).Draw(rt, "times")),
					Group:   text.Draw(rt, "group"),
					DedupID: text.Draw(rt, "dedup"),
					Delay:   time.Duration(rapid.SampledFrom([]int{0, 0, 900, 901}).Draw(rt, "delay")) * time.Second,
				}
				names := map[string]bool{}
				for range rapid.IntRange(0, 11).Draw(rt, "attributes") {
					a := relay.Attribute{Name: text.Draw(rt, "name"), Value: text.Draw(rt, "value")}
					if !names[a.Name] {
						m.Attributes = append(m.Attributes, a)
					}
					names[a.Name] = true
				}
				results, fault := p.Publish(t.Context(), []*relay.Message{m})
				require.Nil(rt, fault)
				if err := p.Check(m); err != nil {
					require.Equal(rt, relay.OutcomeRejected, results[0].Outcome, err.Error())
				} else {
					require.Equal(rt, relay.OutcomeDelivered, results[0].Outcome, results[0].Detail)
				}
			})
		})
	}
}

func TestSizeIsCountedToTheByteAsSQSCountsIt(t *testing.T) {
	t.Parallel()
	p, ts := start(t, plainQueue)
	m := &relay.Message{Attributes: []relay.Attribute{{Name: "plain", Value: "x"}, {Name: "city", Value: "Zürich \U0001F680"}}}
	m.Body = strings.Repeat("漢", (maxBytes-p.Size(m))/3)
	m.Body += strings.Repeat("x", maxBytes-p.Size(m))
	require.Equal(t, maxBytes, p.Size(m))
	require.NoError(t, p.Check(m))
	results, fault := publish(t, p, []*relay.Message{m})
	require.Nil(t, fault)
	require.Equal(t, all(1, relay.OutcomeDelivered, nil), outcomes(results))
	require.Equal(t, m.Body, ts.Messages(plainQueue)[0].Body)

	m.Attributes[1].Value += "!"
	require.ErrorContains(t, p.Check(m), "message_too_large")
	results, fault = publish(t, p, []*relay.Message{m})
	require.Nil(t, fault)
	require.Equal(t, all(1, relay.OutcomeRejected, nil), outcomes(results))
}

func TestTheQueuesOwnLimitCounts(t *testing.T) {
	t.Parallel()
	ts := sqstest.Start(t)
	ts.CreateQueue(plainQueue, map[string]string{"MaximumMessageSize": "2048"})
	p := unopened(t, destination(ts.URL, plainQueue))
	require.NoError(t, p.Open(t.Context()))
	m := &relay.Message{Body: strings.Repeat("x", 2048)}
	require.NoError(t, p.Check(m))
	m.Body += "x"
	require.ErrorContains(t, p.Check(m), "the queue takes 2048")
	require.Equal(t, maxBytes, p.Limits().Bytes, "a batch is compared with SQS's limit, not with the queue's")
}
