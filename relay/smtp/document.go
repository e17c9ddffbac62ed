package smtp

import (
	"net/mail"
	"slices"
	"strings"
	"unicode/utf8"

	"pgrelay/relay"
)

// document is a mail as the body of a message describes it.
type document struct {
	to, cc  []*mail.Address
	subject string
	text    string
	html    string
	headers []header
	event   *event // nil without `calendar`
}

// parse reads a message's body. from stands in where an invitation names no organizer.
func parse(body string, from mail.Address) (*document, *relay.Rejection) {
	if !utf8.ValidString(body) {
		return nil, &relay.Rejection{Reason: "invalid_utf8", Detail: "the body is not valid UTF-8"}
	}
	var bad *relay.Rejection
	r := newReader(body, &bad)
	d := &document{
		to: r.addresses("to"), cc: r.addresses("cc"),
		subject: r.line("subject"), text: r.text("text"), html: r.text("html"),
		headers: readHeaders(r.object("headers")),
	}
	if calendar := r.object("calendar"); calendar.keys != nil {
		d.event = readEvent(calendar, d, from)
	}
	r.rest()
	d.complete(r)
	if bad != nil {
		return nil, bad
	}
	return d, nil
}

// complete refuses a mail that lacks what every mail has.
func (d *document) complete(r reader) {
	switch {
	case len(d.to)+len(d.cc) == 0:
		r.refuse("no_recipient", "the mail has no address in to or cc")
	case strings.TrimSpace(d.subject) == "":
		r.refuse("malformed_mail", "subject is missing or empty")
	case len(d.subject) > maxSubject:
		r.refuse("malformed_mail", "subject is longer than %d bytes", maxSubject)
	case d.text == "" && d.html == "":
		r.refuse("malformed_mail", "the mail has neither text nor html")
	case strings.ContainsRune(d.text, 0) || strings.ContainsRune(d.html, 0):
		r.refuse("invalid_characters", "text or html has a NUL, which no mail may have")
	}
}

// maxSubject keeps a subject within the length of a line (RFC 5322, 2.1.1), whatever it is made of.
const maxSubject = 900

// international says that the mail can only go where SMTPUTF8 is spoken: an address that it shows has other letters than ASCII's.
func (d *document) international() bool {
	shown := slices.Concat(d.to, d.cc)
	for _, h := range d.headers {
		shown = append(shown, h.addresses...)
	}
	return slices.ContainsFunc(shown, func(a *mail.Address) bool { return !isASCII(a.Address) })
}

// recipients are whom the mail goes to.
func (d *document) recipients() []string { return unique(d.to, d.cc) }
