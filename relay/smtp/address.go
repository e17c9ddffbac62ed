package smtp

import (
	"mime"
	"net/mail"
	"strings"
)

// maxName keeps a name within the length of a line.
const maxName = 250

// parseAddress takes one address or "Name <address>", the name in quotes or not, without any control character, so that
// neither a command nor a header can be smuggled in.
func parseAddress(text string) (*mail.Address, bool) {
	if hasControls(text) {
		return nil, false
	}
	a, err := mail.ParseAddress(text)
	if err != nil {
		// Producers put names together as they come: Turing, Alan <alan@example.com>.
		at := strings.LastIndexByte(text, '<')
		if at < 0 || strings.ContainsAny(text[:at], `<>@"`) || strings.Contains(text, "=?") {
			return nil, false
		}
		if a, err = mail.ParseAddress(text[at:]); err != nil {
			return nil, false
		}
		a.Name = strings.TrimSpace(text[:at])
	}
	at := strings.LastIndexByte(a.Address, '@')
	// RFC 5321, 4.5.3.1, as corrected by its erratum 1690.
	if at > 64 || len(a.Address) > 254 || len(a.Name) > maxName || hasControls(a.Name) {
		return nil, false
	}
	a.Name = oneLine(a.Name)
	a.Address = a.Address[:at] + strings.ToLower(a.Address[at:]) // the case of a domain means nothing
	return a, true
}

// addressList is addresses as headers have them. Of a name in other letters than ASCII's the standard library leaves a backslash as it
// is, which nobody can read then, itself included.
func addressList(addresses []*mail.Address) string {
	list := make([]string, len(addresses))
	for i, a := range addresses {
		list[i] = a.String()
		if !isASCII(a.Name) {
			list[i] = mime.BEncoding.Encode("utf-8", a.Name) + " <" + envelope(a.Address) + ">"
		}
	}
	return strings.Join(list, ", ")
}

// envelope is an address as MAIL and RCPT have it between < and >, with its local part quoted where it has to be.
func envelope(address string) string {
	a := mail.Address{Address: address}
	return strings.Trim(a.String(), "<>")
}

// unique drops what comes again; the local part's case may mean something, and counts.
func unique(all ...[]*mail.Address) []string {
	var list []string
	seen := map[string]bool{}
	for _, addresses := range all {
		for _, a := range addresses {
			if !seen[a.Address] {
				seen[a.Address] = true
				list = append(list, envelope(a.Address))
			}
		}
	}
	return list
}

func hasControls(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}
