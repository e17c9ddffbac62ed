package smtp

import (
	"net/mail"
	"net/url"
	"strings"
	"time"
)

// event is an entry in calendars: an invitation, its change or its end.
type event struct {
	cancel      bool
	uid         string
	sequence    int
	start, end  time.Time // UTC
	summary     string
	description string
	location    string
	url         string
	organizer   *mail.Address
	attendees   []*mail.Address
}

// readEvent takes `calendar`. What it doesn't say the mail does: the summary is the subject, the attendees those who get
// the mail.
func readEvent(r reader, d *document, from mail.Address) *event {
	e := &event{
		uid: r.line("uid"), start: r.instant("start"), end: r.instant("end"),
		summary: r.line("summary"), description: r.text("description"), location: r.line("location"), url: r.line("url"),
		attendees: r.addresses("attendees"), organizer: &from,
	}
	sequence, numbered := r.integer("sequence")
	e.sequence = sequence
	switch method := r.text("method"); method {
	case "request":
	case "reschedule", "cancel":
		e.cancel = method == "cancel"
		// Calendars drop what isn't newer than what they have, without a word.
		if !numbered || sequence == 0 {
			r.refuse("invalid_calendar", "%ssequence must be there and above that of the invitation before", r.path)
		}
	default:
		r.refuse("invalid_calendar", "%smethod is none of request, reschedule and cancel", r.path)
	}
	if o := r.addresses("organizer"); len(o) == 1 {
		e.organizer = o[0]
	} else if len(o) > 1 {
		r.refuse("invalid_calendar", "%sorganizer is more than one", r.path)
	}
	if e.summary == "" {
		e.summary = d.subject
	}
	if len(e.attendees) == 0 {
		e.attendees = append(append(e.attendees, d.to...), d.cc...)
	}
	e.check(r)
	r.rest()
	return e
}

func (e *event) check(r reader) {
	u, err := url.Parse(e.url)
	switch {
	case e.uid == "" || len(e.uid) > 255:
		r.refuse("invalid_calendar", "%suid must be there and at most 255 bytes: it ties an invitation to its changes and its end", r.path)
	case hasControls(strings.NewReplacer("\r", "", "\n", "", "\t", "").Replace(e.description)):
		r.refuse("invalid_characters", "%sdescription has a control character other than a line break", r.path)
	case !e.end.After(e.start):
		r.refuse("invalid_calendar", "%send is not after start", r.path)
	case e.url != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || !isASCII(e.url)):
		r.refuse("invalid_calendar", "%surl is no http or https address", r.path)
	}
}
