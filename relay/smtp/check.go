package smtp

import (
	"pgrelay/relay"
)

// Check refuses what can never be sent, whoever it is for.
func (p *Publisher) Check(m *relay.Message) error {
	d, bad := parse(m.Body, p.from)
	if bad == nil && d.international() {
		// Of a server that hasn't been asked nothing is known.
		if server := p.server.Load(); server != nil && !server.utf8 {
			bad = noSMTPUTF8()
		}
	}
	if bad != nil {
		return bad
	}
	return nil
}

// Recipients are whom a message goes to, as RCPT has them: to, then cc, each once.
func (p *Publisher) Recipients(m *relay.Message) []string {
	d, bad := parse(m.Body, p.from)
	if bad != nil {
		return nil
	}
	return d.recipients()
}

func noSMTPUTF8() *relay.Rejection {
	return &relay.Rejection{
		Reason: "smtputf8_missing",
		Detail: "an address has letters other than ASCII's, and the server doesn't offer SMTPUTF8; write such a domain as xn--…",
	}
}
