package smtp

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/smtptest"
	"pgrelay/relay"
)

// outcome is what a call brought.
type outcome struct {
	relay.Outcome
	reason string
	fault  bool
}

var (
	delivered = outcome{relay.OutcomeDelivered, "", false}
	busy      = outcome{relay.OutcomeBack, reasonBusy, true}
	lost      = outcome{relay.OutcomeBack, reasonLost, true}
	away      = outcome{relay.OutcomeBack, reasonUnreachable, true}
)

func back(reason string) outcome { return outcome{relay.OutcomeBack, reason, true} }

// TestOutcomeByStepAndAnswer breaks each step in each way, on a connection that is new to the call.
func TestOutcomeByStepAndAnswer(t *testing.T) {
	t.Parallel()
	recipientRefused, recipientDeferred := outcome{relay.OutcomeRejected, "recipient_refused", false}, outcome{relay.OutcomeRetry, "recipient_deferred", false}
	messageRefused, messageDeferred := outcome{relay.OutcomeRejected, "message_refused", false}, outcome{relay.OutcomeRetry, "message_deferred", false}
	unknown := func(reason string) outcome { return outcome{relay.OutcomeUnknown, reason, false} }
	for _, c := range []struct {
		verb  string
		fault smtptest.Fault
		want  outcome
	}{
		{"CONNECT", reply("220 fine"), delivered},
		{"CONNECT", reply("421 4.3.2 too many"), busy},
		{"CONNECT", reply("450 later"), busy},
		{"CONNECT", reply("554 5.7.1 go away"), back(reasonRefused)},
		{"CONNECT", reply("HTTP/1.1 400 Bad Request"), back(reasonNotSMTP)},
		{"CONNECT", cut, away},
		{"CONNECT", hang, away},
		{"EHLO", reply("421 4.3.2 closing"), busy},
		{"EHLO", reply("451 later"), busy},
		{"EHLO", reply("550 who are you"), back(reasonRefused)},
		{"EHLO", cut, away},
		{"EHLO", hang, away},
		{"MAIL", reply("421 4.3.2 closing"), busy},
		{"MAIL", reply("451 4.3.0 later"), busy},
		{"MAIL", reply("452 4.2.2 no room"), busy},
		{"MAIL", reply("550 5.7.1 not you"), back(reasonSender)},
		{"MAIL", reply("552 5.2.2 quota"), back(reasonSender)},
		{"MAIL", reply("530 5.7.0 log in"), back(reasonAuth)},
		{"MAIL", cut, lost},
		{"MAIL", hang, lost},
		{"RCPT", reply("251 2.1.5 will forward"), delivered},
		{"RCPT", reply("550 5.1.1 <" + ada + "> unknown " + secret), recipientRefused},
		{"RCPT", reply("552 5.2.2 full"), recipientRefused},
		{"RCPT", reply("553 odd"), recipientRefused},
		{"RCPT", reply("450 4.2.1 " + ada + " later"), recipientDeferred},
		{"RCPT", reply("452 4.2.2 full"), recipientDeferred},
		{"RCPT", reply("421 4.7.0 closing"), busy},
		{"RCPT", reply("530 5.7.0 log in"), back(reasonAuth)},
		{"RCPT", reply("399 what"), back(reasonRefused)},
		{"RCPT", cut, lost},
		{"RCPT", hang, lost},
		{"DATA", reply("451 4.3.0 later"), messageDeferred},
		{"DATA", reply("554 5.5.1 no valid recipients"), messageRefused},
		{"DATA", reply("421 4.3.2 closing"), busy},
		{"DATA", cut, lost},
		{"DATA", hang, lost},
		{"DOT", reply("250 fine"), delivered},
		{"DOT", reply("252 2.0.0 fine as well"), delivered},
		{"DOT", reply("550 5.7.1 spam " + secret), messageRefused},
		{"DOT", reply("552 5.3.4 too big"), messageRefused},
		{"DOT", reply("554 5.6.0 no"), messageRefused},
		{"DOT", reply("451 4.3.0 later"), messageDeferred},
		{"DOT", reply("452 4.3.1 no room"), messageDeferred},
		{"DOT", reply("421 4.3.2 closing"), messageDeferred},
		{"DOT", reply("354 what"), unknown("unclear_reply")},
		{"DOT", reply("what"), unknown("reply_lost")},
		{"DOT", cut, unknown("reply_lost")},
		{"DOT", smtptest.Fault{Cut: true, Accept: true}, unknown("reply_lost")},
		{"DOT", hang, unknown("timeout")},
	} {
		name := c.verb + " " + c.fault.Reply
		if c.fault.Reply == "" {
			name += map[bool]string{true: "hang", false: "cut"}[c.fault.Hang]
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t)
			p.idle.close() // what Open has left
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			s.SetFault(func(command smtptest.Command) smtptest.Fault {
				if command.Verb != c.verb {
					return smtptest.Fault{}
				}
				if c.fault.Hang {
					cancel(errDeadline) // as if the time were over
				}
				return c.fault
			})
			result, fault := publishIn(ctx, t, p, mailTo(with(nil), ada))
			require.Equal(t, c.want, outcome{result.Outcome, result.Reason, fault != nil}, "%s", result.Detail)
			if fault != nil {
				require.Equal(t, result.Reason, fault.Reason)
				require.Equal(t, c.want == busy, fault.Throttled)
			}
			s.SetFault(nil)
			requireDelivered(t, p, mailTo(with(nil), bob))
			next := s.MailsTo(bob)
			require.Len(t, next, 1, "the next mail isn't touched")
			if strings.HasPrefix(c.fault.Reply, "421") {
				require.Equal(t, 3, next[0].Session, "what the server closes is not used again")
			}
		})
	}
}

var (
	cut  = smtptest.Fault{Cut: true}
	hang = smtptest.Fault{Hang: true}
)

func reply(text string) smtptest.Fault { return smtptest.Fault{Reply: text} }

func TestMailCutWithinItsBodyGoesBack(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	s.SetFault(smtptest.On("BODY", cut))
	long := make([]byte, 12<<20) // more than any buffer on the way takes
	for i := range long {
		long[i] = 'x'
	}
	result, fault := publish(t, p, mailTo(with(doc{"text": string(long)}), ada))
	require.Equal(t, relay.OutcomeBack, result.Outcome)
	require.Equal(t, reasonLost, fault.Reason)
	require.Empty(t, s.Mails())
}

func TestOpenIsRefusedWhereTheSenderIs(t *testing.T) {
	t.Parallel()
	s := smtptest.Start(t, smtptest.Options{})
	s.SetFault(smtptest.On("MAIL", reply("550 5.7.1 not from there")))
	var fault *relay.Fault
	require.ErrorAs(t, unopened(t, s, destination(s)).Open(t.Context()), &fault)
	require.Equal(t, reasonSender, fault.Reason)
	require.Contains(t, fault.Detail, "not from there")
}

func TestServerThatIsNotThereIsAFault(t *testing.T) {
	t.Parallel()
	s := smtptest.Start(t, smtptest.Options{})
	d := destination(s)
	d.Host = "mail.invalid"
	var fault *relay.Fault
	require.ErrorAs(t, unopened(t, s, d).Open(t.Context()), &fault)
	require.Equal(t, reasonUnreachable, fault.Reason)
	require.Contains(t, fault.Detail, "mail.invalid")
}

func TestNewRefusesWhatWouldShowThePassword(t *testing.T) {
	t.Parallel()
	d := config.Destination{Host: "smtp.example.com", TLS: config.TLSNone, Username: "u", Password: secret, From: ada, Concurrency: 1, Timeout: 1}
	_, err := New(d, Options{})
	require.ErrorContains(t, err, "tls")
	require.NotContains(t, err.Error(), secret)
}
