package sqs

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"pgrelay/relay"
)

const (
	maxEntries    = 10
	maxBytes      = 1 << 20 // of a call, and of a message where the queue sets nothing lower
	maxAttributes = 10
	maxName       = 256
	maxID         = 128
	maxDelay      = 900 * time.Second
	stringType    = "String"
)

// Size is what SQS counts: the body and each attribute's name, type and value.
func (p *Publisher) Size(m *relay.Message) int {
	size := len(m.Body)
	for _, a := range m.Attributes {
		size += len(a.Name) + len(stringType) + len(a.Value)
	}
	return size
}

// Check refuses what SQS would refuse whenever it were sent.
func (p *Publisher) Check(m *relay.Message) error {
	if r := p.check(m); r != nil {
		return r
	}
	return nil
}

func (p *Publisher) check(m *relay.Message) *relay.Rejection {
	if m.Body == "" {
		return reject("empty_body", "the body is empty; SQS takes messages of at least one byte")
	}
	limit := maxBytes
	if q := p.queue.Load(); q != nil {
		limit = q.maxBytes
	}
	if size := p.Size(m); size > limit {
		return reject("message_too_large", "the message has %d bytes with its attributes; the queue takes %d", size, limit)
	}
	if r := checkText("the body", m.Body); r != nil {
		return r
	}
	if r := checkAttributes(m.Attributes); r != nil {
		return r
	}
	return p.checkDelivery(m)
}

// checkDelivery looks at what depends on the queue's type: group, deduplication id, delay.
func (p *Publisher) checkDelivery(m *relay.Message) *relay.Rejection {
	if p.fifo || m.Group != "" {
		if r := checkID("invalid_group", "the message group", m.Group); r != nil {
			return r
		}
	}
	if p.fifo {
		if r := checkID("invalid_dedup_id", "the deduplication id", m.DedupID); r != nil {
			return r
		}
	}
	switch {
	case m.Delay > 0 && p.fifo:
		return reject("delay_on_fifo", "a FIFO queue delays whole queues, not single messages")
	case m.Delay < 0 || m.Delay > maxDelay:
		return reject("invalid_delay", "the delay is %s; SQS takes 0s to 15m", m.Delay)
	}
	return nil
}

func checkAttributes(attributes []relay.Attribute) *relay.Rejection {
	if n := len(attributes); n > maxAttributes {
		return reject("too_many_attributes", "the message has %d attributes; SQS takes %d", n, maxAttributes)
	}
	for i, a := range attributes {
		// A name that SQS refuses is not shown: nobody knows what was put there.
		if problem := nameProblem(a.Name); problem != "" {
			return reject("invalid_attribute_name", "the name of attribute %d %s", i+1, problem)
		}
		for _, before := range attributes[:i] {
			if before.Name == a.Name {
				return reject("duplicate_attribute", "there are two attributes %s", a.Name)
			}
		}
		if a.Value == "" {
			return reject("empty_attribute", "attribute %s is empty", a.Name)
		}
		if r := checkText("attribute "+a.Name, a.Value); r != nil {
			return r
		}
	}
	return nil
}

// nameProblem says what SQS has against an attribute's name.
func nameProblem(name string) string {
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return fmt.Sprintf("has %d characters; SQS takes %d", len(name), maxName)
	case strings.IndexFunc(name, func(r rune) bool { return !letterOrDigit(r) && !strings.ContainsRune("_-.", r) }) >= 0:
		return "has other characters than letters, digits, _, - and ."
	case strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, ".."):
		return "begins or ends with a dot or has two in a row"
	case strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."):
		return "begins with AWS. or Amazon., which are reserved"
	}
	return ""
}

func letterOrDigit(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// checkID takes 1 to 128 printable ASCII characters without the space.
func checkID(reason, what, id string) *relay.Rejection {
	if id == "" {
		return reject(reason, "%s is empty; a FIFO queue needs one", what)
	}
	if len(id) > maxID {
		return reject(reason, "%s has %d bytes; SQS takes %d", what, len(id), maxID)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return reject(reason, "%s has a space, a control or a non-ASCII character at byte %d", what, i)
		}
	}
	return nil
}

// checkText takes valid UTF-8 of #x9, #xA, #xD, #x20-#xD7FF, #xE000-#xFFFD and
// #x10000-#x10FFFF, which is XML's set.
func checkText(what, s string) *relay.Rejection {
	for i, r := range s {
		switch {
		case r >= ' ' && r < utf8.RuneError, r > 0xFFFF, r == '\t', r == '\n', r == '\r':
		case r == utf8.RuneError:
			if _, width := utf8.DecodeRuneInString(s[i:]); width == 1 {
				return reject("invalid_utf8", "%s is not valid UTF-8 at byte %d", what, i)
			}
		default:
			return reject("invalid_characters", "%s has the character U+%04X at byte %d, which SQS refuses", what, r, i)
		}
	}
	return nil
}

func reject(reason, format string, args ...any) *relay.Rejection {
	return &relay.Rejection{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}
