package smtp

import (
	"bytes"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/emersion/go-ical"
)

const (
	methodRequest = "REQUEST"
	methodCancel  = "CANCEL"
	product       = "-//pgrelay//pgrelay//EN"
	maxFold       = 75 // RFC 5545, 3.1: bytes of a line without its end
)

func (e *event) method() string {
	if e.cancel {
		return methodCancel
	}
	return methodRequest
}

// icalendar is the event as RFC 5546 (3.2.2 and 3.2.5) wants it. Times are UTC: a single event needs no rules of a time zone, and
// every calendar shows it in its owner's.
func (e *event) icalendar(now time.Time) ([]byte, error) {
	entry := ical.NewEvent()
	text(entry.Props, ical.PropUID, e.uid)
	entry.Props.SetDateTime(ical.PropDateTimeStamp, now.UTC())
	entry.Props.SetDateTime(ical.PropDateTimeStart, e.start)
	entry.Props.SetDateTime(ical.PropDateTimeEnd, e.end)
	set(entry.Props, ical.PropSequence, strconv.Itoa(e.sequence))
	set(entry.Props, ical.PropStatus, "CONFIRMED")
	if e.cancel {
		set(entry.Props, ical.PropStatus, "CANCELLED")
	}
	text(entry.Props, ical.PropSummary, e.summary)
	text(entry.Props, ical.PropDescription, newlines.Replace(e.description))
	text(entry.Props, ical.PropLocation, e.location)
	set(entry.Props, ical.PropURL, e.url)
	entry.Props.Add(user(ical.PropOrganizer, e.organizer))
	for _, a := range e.attendees {
		p := user(ical.PropAttendee, a)
		p.Params.Set(ical.ParamRole, "REQ-PARTICIPANT")
		if !e.cancel {
			p.Params.Set(ical.ParamParticipationStatus, "NEEDS-ACTION")
			p.Params.Set(ical.ParamRSVP, "TRUE")
		}
		entry.Props.Add(p)
	}
	calendar := ical.NewCalendar()
	set(calendar.Props, ical.PropProductID, product)
	set(calendar.Props, ical.PropVersion, "2.0")
	set(calendar.Props, ical.PropCalendarScale, "GREGORIAN")
	set(calendar.Props, ical.PropMethod, e.method())
	calendar.Children = append(calendar.Children, entry.Component)
	var buf bytes.Buffer
	if err := ical.NewEncoder(&buf).Encode(calendar); err != nil {
		return nil, err
	}
	return fold(buf.Bytes()), nil
}

// newlines makes every line's end one that iCalendar's texts have.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func set(props ical.Props, name, value string) {
	if value != "" {
		p := ical.NewProp(name)
		p.Value = value
		props.Set(p)
	}
}

func text(props ical.Props, name, value string) {
	if value != "" {
		p := ical.NewProp(name)
		p.SetText(value)
		props.Set(p)
	}
}

// user is a CAL-ADDRESS with its name. No parameter can hold a quotation mark.
func user(name string, a *mail.Address) *ical.Prop {
	p := ical.NewProp(name)
	p.Value = (&url.URL{Scheme: "mailto", Opaque: escapeAddress(a.Address)}).String()
	if a.Name != "" {
		p.Params.Set(ical.ParamCommonName, strings.ReplaceAll(a.Name, `"`, "'"))
	}
	return p
}

// escapeAddress leaves alone what RFC 6068 does: calendars compare addresses as they stand.
func escapeAddress(address string) string {
	var b strings.Builder
	for i := range len(address) {
		if c := address[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`%?#"<>[]\^{|}`+"`", c) >= 0 {
			b.WriteString(url.PathEscape(string([]byte{c})))
			continue
		}
		b.WriteByte(address[i])
	}
	return b.String()
}

// fold breaks long lines between characters, which the library doesn't.
func fold(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.SplitAfterSeq(text, []byte("\r\n")) {
		room := maxFold
		for len(line) > room+len("\r\n") {
			cut := room
			for !utf8.RuneStart(line[cut]) {
				cut--
			}
			b.Write(line[:cut])
			b.WriteString("\r\n ")
			line, room = line[cut:], maxFold-1 // the blank counts
		}
		b.Write(line)
	}
	return b.Bytes()
}
