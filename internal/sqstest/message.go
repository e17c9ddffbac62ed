package sqstest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Message is one message as the server accepted it.
type Message struct {
	MessageID      string
	Body           string
	Attributes     map[string]Attribute
	GroupID        string
	DedupID        string // FIFO: what it was deduplicated by, given or made of the body
	SequenceNumber string // FIFO only
	Delay          time.Duration
	ReceivedAt     time.Time // by the server's clock
}

// Attribute is one message attribute.
type Attribute struct {
	Type  string // String, Number, Binary, with a label where one was given
	Value string // Binary: base64
}

// outgoing is a message as a sender spells it: SendMessage, or one entry of a batch.
type outgoing struct {
	ID                      string `json:"Id"`
	MessageBody             string
	DelaySeconds            *int
	MessageAttributes       map[string]attributeValue
	MessageSystemAttributes map[string]attributeValue
	MessageGroupID          *string `json:"MessageGroupId"`
	MessageDeduplicationID  *string `json:"MessageDeduplicationId"`
}

type attributeValue struct {
	DataType         string   `json:",omitempty"`
	StringValue      *string  `json:",omitempty"`
	BinaryValue      []byte   `json:",omitempty"`
	StringListValues []string `json:",omitempty"`
	BinaryListValues [][]byte `json:",omitempty"`
}

func (v attributeValue) binary() bool { return strings.HasPrefix(v.DataType, "Binary") }

// bytes is the value as it is counted and hashed.
func (v attributeValue) bytes() []byte {
	if v.binary() {
		return v.BinaryValue
	}
	return []byte(deref(v.StringValue))
}

// size is what AWS counts: body and attributes; system attributes are free. Group and
// deduplication ids don't count (unverified).
func (o *outgoing) size() int {
	n := len(o.MessageBody)
	for name, v := range o.MessageAttributes {
		n += len(name) + len(v.DataType) + len(deref(v.StringValue)) + len(v.BinaryValue)
	}
	return n
}

// attributes in the form in which tests read them.
func (o *outgoing) attributes() map[string]Attribute {
	m := make(map[string]Attribute, len(o.MessageAttributes))
	for name, v := range o.MessageAttributes {
		a := Attribute{Type: v.DataType, Value: deref(v.StringValue)}
		if v.binary() {
			a.Value = base64.StdEncoding.EncodeToString(v.BinaryValue)
		}
		m[name] = a
	}
	return m
}

// stored is a message that waits in a queue or is in flight.
type stored struct {
	Message
	order         uint64 // of acceptance
	sent          *outgoing
	lane          *lane
	visibleAt     time.Time
	receives      int
	firstReceived time.Time
}

// handle names this receive of the message.
func (m *stored) handle() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s#%d", m.MessageID, m.receives))
}

// parseHandle is handle's inverse.
func parseHandle(handle string) (id string, receive int, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(handle)
	if err != nil {
		return "", 0, false
	}
	id, count, found := strings.Cut(string(text), "#")
	if _, err := fmt.Sscanf(count, "%d", &receive); err != nil || !found {
		return "", 0, false
	}
	return id, receive, true
}

// newID makes a random UUID, as message and request ids are.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
