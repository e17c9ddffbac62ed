package smtptest

import "time"

// Command is what a fault is decided by. Beside the commands of SMTP the greeting is CONNECT, the TLS handshake TLS, the message as it
// comes BODY (decided before its first line is read) and its end DOT.
type Command struct {
	Verb      string
	Argument  string
	Recipient string // of the transaction, once RCPT names it
	Session   int    // the connection's number, from 1
	Mail      int    // the transaction's number in its session, from 1; 0 before the first
}

// Fault is what goes wrong with one command. The zero value is that nothing does.
type Fault struct {
	// Delay comes before all else, and ends with the server.
	Delay time.Duration
	// Reply is sent instead of the usual answer; unless it is a 2xx, what it answers doesn't take effect. At BODY there is none.
	Reply string
	// Accept has a message be kept although the answer for it is a fault: it was accepted, and nobody hears of it.
	Accept bool
	// Hang: nothing is answered until the server ends.
	Hang bool
	// Cut breaks the connection, after Reply if there is one.
	Cut bool
}

// On is a fault of one command.
func On(verb string, fault Fault) func(Command) Fault {
	return func(c Command) Fault {
		if c.Verb == verb {
			return fault
		}
		return Fault{}
	}
}

// For is a fault of one command for one recipient.
func For(recipient, verb string, fault Fault) func(Command) Fault {
	return func(c Command) Fault {
		if c.Verb == verb && c.Recipient == recipient {
			return fault
		}
		return Fault{}
	}
}
