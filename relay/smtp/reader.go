package smtp

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strconv"
	"time"

	"pgrelay/relay"
)

// reader takes the keys of a JSON object one by one and remembers the first thing that is wrong. It says nothing
// of values: they are the payload.
type reader struct {
	keys map[string]json.RawMessage
	path string // before the names of keys
	bad  **relay.Rejection
}

// newReader reads a whole text that is to be an object.
func newReader(text string, bad **relay.Rejection) reader {
	r := reader{bad: bad}
	if json.Unmarshal([]byte(text), &r.keys) != nil || r.keys == nil {
		r.refuse("malformed_mail", "the body is no JSON object")
	}
	return r
}

func (r reader) refuse(reason, format string, args ...any) {
	if *r.bad == nil {
		*r.bad = &relay.Rejection{Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
}

// take gives a key's value, nil if it is missing or null.
func (r reader) take(key string) json.RawMessage {
	value := r.keys[key]
	delete(r.keys, key)
	if string(value) == "null" {
		return nil
	}
	return value
}

// text takes a key that is a string.
func (r reader) text(key string) (text string) {
	if value := r.take(key); value != nil && json.Unmarshal(value, &text) != nil {
		r.refuse("malformed_mail", "%s%s is no text", r.path, key)
	}
	return text
}

// line takes a key that is a string without control characters.
func (r reader) line(key string) string {
	text := r.text(key)
	if hasControls(text) {
		r.refuse("invalid_characters", "%s%s has a line break or another control character", r.path, key)
	}
	return text
}

// integer takes a key that is a whole number from 0 on; given says whether it is there.
func (r reader) integer(key string) (n int, given bool) {
	value := r.take(key)
	if value == nil {
		return 0, false
	}
	n, err := strconv.Atoi(string(value))
	if err != nil || n < 0 || n > 1<<31-1 {
		r.refuse("malformed_mail", "%s%s is no whole number from 0 to 2147483647", r.path, key)
	}
	return n, true
}

// instant takes a key that is a time with its offset.
func (r reader) instant(key string) time.Time {
	text := r.text(key)
	t, err := time.Parse(time.RFC3339, text)
	switch {
	case text == "":
		r.refuse("malformed_mail", "%s%s is missing", r.path, key)
	case err != nil:
		r.refuse("malformed_mail", "%s%s is no time such as 2026-03-01T09:00:00+01:00", r.path, key)
	}
	return t.UTC()
}

// object takes a key that is an object; nil keys if it is missing.
func (r reader) object(key string) reader {
	inner := reader{path: r.path + key + ".", bad: r.bad}
	if value := r.take(key); value != nil && json.Unmarshal(value, &inner.keys) != nil {
		r.refuse("malformed_mail", "%s%s is no object", r.path, key)
	}
	return inner
}

// addresses takes a key that is a list of addresses, or one.
func (r reader) addresses(key string) []*mail.Address {
	value := r.take(key)
	if value == nil {
		return nil
	}
	var texts []string
	var text string
	if json.Unmarshal(value, &text) == nil {
		texts = []string{text}
	} else if json.Unmarshal(value, &texts) != nil {
		r.refuse("malformed_mail", "%s%s is neither a text nor a list of texts", r.path, key)
	}
	list := make([]*mail.Address, 0, len(texts))
	for i, text := range texts {
		a, ok := parseAddress(text)
		if !ok {
			r.refuse("invalid_address", `address %d of %s%s is none: "name@example.com" or "Name <name@example.com>"`, i+1, r.path, key)
			return nil
		}
		list = append(list, a)
	}
	return list
}

// rest refuses keys that nobody has taken.
func (r reader) rest() {
	for _, key := range slices.Sorted(maps.Keys(r.keys)) {
		r.refuse("malformed_mail", "%s has a key that a mail doesn't have: %.60q", r.where(), key)
	}
}

func (r reader) where() string {
	if r.path == "" {
		return "the body"
	}
	return r.path[:len(r.path)-1]
}
