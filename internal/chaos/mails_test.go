package chaos_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"pgrelay/internal/smtptest"
)

// A recipient's address names the event, so that each has one mail at most, whatever happens.

func eventOf(recipient string) string {
	local, _, _ := strings.Cut(recipient, "@")
	_, event, _ := strings.Cut(local, ".")
	return event
}

// receive is the mail server's fault hook. Each message that reached the server is a send, and so is one that failed before.
func (a *answers) receive(c smtptest.Command) smtptest.Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := a.wrong[mailServer]
	f := mailFaultOf(kind, c.Verb)
	wrong := f != (smtptest.Fault{})
	if c.Recipient == "" || c.Verb != "DOT" && !wrong {
		return f
	}
	a.calls++
	s := &send{
		call: a.calls, at: time.Now(), queue: mailServer, event: eventOf(c.Recipient), recipient: c.Recipient,
		stored:   c.Verb == "DOT" && (f == smtptest.Fault{Delay: f.Delay} || f.Accept),
		told:     c.Verb != "DOT" && c.Verb != "BODY" || !f.Cut && !f.Hang, // before the message nobody need be told
		rejected: strings.HasPrefix(f.Reply, "5"),
	}
	s.answered = s.at.Add(f.Delay)
	if wrong {
		s.fate = kind + " at " + c.Verb
	}
	a.sends = append(a.sends, s)
	return f
}

// mailFaultOf rolls the dice for one command.
func mailFaultOf(kind, verb string) (f smtptest.Fault) {
	some := func(likely float64, fault smtptest.Fault, verbs ...string) {
		if slices.Contains(verbs, verb) && rand.Float64() < likely {
			f = fault
		}
	}
	switch kind {
	case "mails refused":
		some(0.2, smtptest.Fault{Reply: "450 4.2.1 later"}, "RCPT")
		some(0.2, smtptest.Fault{Reply: "452 4.3.1 later"}, "DOT")
		some(0.02, smtptest.Fault{Reply: "421 4.3.2 later", Cut: true}, "MAIL", "RCPT", "DATA")
	case "mails refused for good":
		some(0.1, smtptest.Fault{Reply: "550 5.1.1 nobody"}, "RCPT")
		some(0.1, smtptest.Fault{Reply: "554 5.6.0 no"}, "DOT")
	case "mails cut off":
		some(0.1, smtptest.Fault{Cut: true}, "CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "BODY")
	case "mail replies lost":
		some(0.3, smtptest.Fault{Cut: true, Accept: rand.IntN(2) == 0}, "DOT")
	case "mails slow":
		some(1, smtptest.Fault{Delay: time.Duration(rand.Int64N(int64(1500 * ms)))}, "DOT")
	case "mails hang":
		some(0.2, smtptest.Fault{Hang: true, Accept: rand.IntN(2) == 0}, "MAIL", "RCPT", "DATA", "DOT")
	case "mail server down":
		f.Cut = true
	}
	return f
}
