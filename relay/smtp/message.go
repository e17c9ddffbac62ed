package smtp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/mail"
	"strings"
	"time"

	"github.com/emersion/go-message"
	mailheader "github.com/emersion/go-message/mail"

	"pgrelay/relay"
)

// part is a piece of a MIME message: a body, or parts.
type part struct {
	media    string
	params   map[string]string
	encoding string
	file     string // an attachment's name
	body     []byte
	parts    []part
}

// render makes the mail to one recipient. It differs from those to the others in its Message-ID alone, which is the same
// whenever that mail is made, so that a repeat can be recognized.
func (d *document) render(from mail.Address, m *relay.Message, now time.Time) ([]byte, error) {
	root, err := d.mime(now)
	if err != nil {
		return nil, err
	}
	h := root.header()
	d.fillHeader(&h, from, m, now)
	var buf bytes.Buffer
	w, err := message.CreateWriter(&buf, h.Header)
	if err != nil {
		return nil, fmt.Errorf("writing the header: %w", err)
	}
	if err := root.write(w); err != nil {
		return nil, fmt.Errorf("writing the body: %w", err)
	}
	return buf.Bytes(), nil
}

// fillHeader sets the last first, as the library puts each on top.
func (d *document) fillHeader(h *mailheader.Header, from mail.Address, m *relay.Message, now time.Time) {
	h.Set("MIME-Version", "1.0")
	// RFC 3834: nobody's absence note shall answer. The document may say otherwise.
	h.Set("Auto-Submitted", "auto-generated")
	for _, extra := range d.headers {
		if len(extra.addresses) > 0 {
			h.Set(extra.name, addressList(extra.addresses))
		} else {
			h.SetText(extra.name, oneLine(extra.value))
		}
	}
	h.Set("Message-ID", "<"+messageID(from, m)+">")
	h.SetDate(now)
	h.SetSubject(oneLine(d.subject))
	for _, list := range []struct {
		name      string
		addresses []*mail.Address
	}{{"Cc", d.cc}, {"To", d.to}, {"From", []*mail.Address{&from}}} {
		if len(list.addresses) > 0 {
			h.Set(list.name, addressList(list.addresses))
		}
	}
}

// messageID is one for each event and recipient.
func messageID(from mail.Address, m *relay.Message) string {
	sum := sha256.Sum256([]byte(m.EventID + "\x00" + m.Recipient))
	return hex.EncodeToString(sum[:16]) + from.Address[strings.LastIndexByte(from.Address, '@'):]
}

// mime arranges the parts. An invitation stands beside the text, where Outlook and Gmail look for it, and once more as a
// file, for those who only open files.
func (d *document) mime(now time.Time) (part, error) {
	var views []part
	if d.text != "" {
		views = append(views, textPart("text/plain", d.text))
	}
	if d.html != "" {
		views = append(views, textPart("text/html", d.html))
	}
	if d.event == nil {
		if len(views) == 1 {
			return views[0], nil
		}
		return part{media: "multipart/alternative", parts: views}, nil
	}
	ics, err := d.event.icalendar(now)
	if err != nil {
		return part{}, fmt.Errorf("writing the calendar entry: %w", err)
	}
	views = append(views, part{
		media: "text/calendar", params: map[string]string{"charset": "utf-8", "method": d.event.method()}, encoding: "base64", body: ics,
	})
	return part{media: "multipart/mixed", parts: []part{
		{media: "multipart/alternative", parts: views},
		{media: "application/ics", params: map[string]string{"name": inviteFile}, encoding: "base64", file: inviteFile, body: ics},
	}}, nil
}

const inviteFile = "invite.ics"

// textPart keeps any text within the lines that mail may have.
func textPart(media, text string) part {
	return part{media: media, params: map[string]string{"charset": "utf-8"}, encoding: "quoted-printable", body: []byte(text)}
}

func (p part) header() mailheader.Header {
	var h mailheader.Header
	if p.file != "" {
		h.SetContentDisposition("attachment", map[string]string{"filename": p.file})
	}
	if p.encoding != "" {
		h.Set("Content-Transfer-Encoding", p.encoding)
	}
	params := map[string]string{}
	for name, value := range p.params {
		params[name] = value
	}
	h.SetContentType(p.media, params)
	return h
}

func (p part) write(w *message.Writer) error {
	if p.parts == nil {
		if _, err := w.Write(p.body); err != nil {
			return err
		}
	}
	for _, child := range p.parts {
		inner, err := w.CreatePart(child.header().Header)
		if err != nil {
			return err
		}
		if err := child.write(inner); err != nil {
			return err
		}
	}
	return w.Close()
}
