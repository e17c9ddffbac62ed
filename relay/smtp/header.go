package smtp

import (
	"maps"
	"net/mail"
	"regexp"
	"slices"
	"strings"
)

// header is one that the document adds.
type header struct {
	name, value string
	addresses   []*mail.Address // instead of value, where the header holds addresses
}

var (
	// headerName is RFC 5322's field name, 3.6.8.
	headerName = regexp.MustCompile(`^[!-9;-~]{1,70}$`)
	// ours are the headers that the relay writes, or that only servers on the way write.
	ours = regexp.MustCompile(`(?i)^(from|sender|to|cc|bcc|subject|date|message-id|mime-.*|content-.*|resent-.*|received|return-path|dkim-signature)$`)
	// longWord cannot be folded into the length of a line.
	longWord = regexp.MustCompile(`[^ \t]{900}`)
	blanks   = regexp.MustCompile(`[ \t]+`)
)

// replyTo holds addresses, which need a form of their own.
const replyTo = "Reply-To"

// readHeaders takes the extra headers in the order of their names.
func readHeaders(r reader) []header {
	var list []header
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.keys)) {
		lower := strings.ToLower(name)
		switch {
		case !headerName.MatchString(name):
			r.refuse("invalid_header", "headers has a name that no header can have: %.60q", name)
		case ours.MatchString(name):
			r.refuse("invalid_header", "headers.%s is written by the relay or on the way; leave it out", name)
		case seen[lower]:
			r.refuse("invalid_header", "headers.%s is given twice", name)
		}
		seen[lower] = true
		h := header{name: name}
		if strings.EqualFold(name, replyTo) {
			h.addresses = r.addresses(name)
		} else if h.value = r.line(name); isASCII(h.value) && longWord.MatchString(h.value) {
			r.refuse("invalid_header", "headers.%s has a word that is longer than a line may be", name)
		}
		if len(h.addresses) > 0 || h.value != "" {
			list = append(list, h)
		}
	}
	return list
}

// oneLine is a text as a header can hold it. Runs of blanks become one: a line could be folded into blanks alone, which
// some take for the end of the headers.
func oneLine(text string) string { return strings.TrimSpace(blanks.ReplaceAllString(text, " ")) }
