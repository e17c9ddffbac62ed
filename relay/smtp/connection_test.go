package smtp

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/smtptest"
	"pgrelay/relay"
)

// secured makes a publisher for a server by its TLS and login.
func secured(t *testing.T, o smtptest.Options, change func(*config.Destination)) (*Publisher, *smtptest.Server) {
	t.Helper()
	s := smtptest.Start(t, o)
	d := destination(s)
	d.TLS = config.TLSStart
	if o.TLS {
		d.TLS = config.TLSImplicit
	}
	if o.Username != "" {
		d.Username, d.Password = "ada", secret
	}
	if change != nil {
		change(&d)
	}
	return unopened(t, s, d), s
}

func openFault(t *testing.T, p *Publisher) *relay.Fault {
	t.Helper()
	var fault *relay.Fault
	require.ErrorAs(t, p.Open(t.Context()), &fault)
	for err := error(fault); err != nil; {
		require.NotContains(t, err.Error(), secret)
		wrapped, ok := err.(interface{ Unwrap() error })
		if !ok {
			break
		}
		err = wrapped.Unwrap()
	}
	require.NotContains(t, fault.Detail, "\n")
	return fault
}

func TestMailGoesOverTLSWithALogin(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]smtptest.Options{
		"STARTTLS":        {StartTLS: true},
		"TLS":             {TLS: true},
		"STARTTLS, PLAIN": {StartTLS: true, Username: "ada", Password: secret, Mechanisms: []string{"PLAIN"}},
		"TLS, PLAIN":      {TLS: true, Username: "ada", Password: secret},
		"TLS, LOGIN":      {TLS: true, Username: "ada", Password: secret, Mechanisms: []string{"LOGIN"}},
		"TLS, CRAM-MD5":   {TLS: true, Username: "ada", Password: secret, Mechanisms: []string{"CRAM-MD5", "LOGIN"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := secured(t, o, nil)
			require.NoError(t, p.Open(t.Context()))
			requireDelivered(t, p, mailTo(with(nil), ada))
			mails := s.Mails()
			require.Len(t, mails, 1)
			require.True(t, mails[0].TLS)
			require.Equal(t, o.Username, mails[0].User)
		})
	}
}

func TestLoginWithoutTLSOnThisMachine(t *testing.T) {
	t.Parallel()
	p, s := secured(t, smtptest.Options{Username: "ada", Password: secret}, func(d *config.Destination) { d.TLS = config.TLSNone })
	require.NoError(t, p.Open(t.Context()))
	requireDelivered(t, p, mailTo(with(nil), ada))
	require.Equal(t, "ada", s.Mails()[0].User)
}

func TestFaultsOfTLSAndLogin(t *testing.T) {
	t.Parallel()
	foreign, _ := smtptest.Issue(t, time.Now().Add(time.Hour), "localhost", "127.0.0.1")
	for name, c := range map[string]struct {
		options smtptest.Options
		change  func(*config.Destination)
		fault   func(smtptest.Command) smtptest.Fault
		reason  string
		names   string
	}{
		"no STARTTLS":           {smtptest.Options{Username: "ada", Password: secret}, nil, nil, reasonNoTLS, "never sent without"},
		"STARTTLS refused":      {smtptest.Options{StartTLS: true}, nil, smtptest.On("STARTTLS", reply("502 no")), reasonRefused, "502"},
		"STARTTLS later":        {smtptest.Options{StartTLS: true}, nil, smtptest.On("STARTTLS", reply("454 4.7.0 later")), reasonBusy, "454"},
		"STARTTLS cut":          {smtptest.Options{StartTLS: true}, nil, smtptest.On("STARTTLS", cut), reasonUnreachable, "STARTTLS"},
		"handshake cut":         {smtptest.Options{StartTLS: true}, nil, smtptest.On("TLS", cut), reasonUnreachable, "EHLO"},
		"unknown authority":     {smtptest.Options{StartTLS: true, Certificate: &foreign}, nil, nil, reasonTLS, "SSL_CERT_FILE"},
		"unknown authority, at": {smtptest.Options{TLS: true, Certificate: &foreign}, nil, nil, reasonTLS, "SSL_CERT_FILE"},
		"TLS at a plain port":   {smtptest.Options{}, func(d *config.Destination) { d.TLS = config.TLSImplicit }, nil, reasonTLS, "speaks no TLS"},
		"login refused":         {smtptest.Options{TLS: true, Username: "ada", Password: "another"}, nil, nil, reasonAuth, "535 5.7.8"},
		"login later":           {smtptest.Options{TLS: true, Username: "ada", Password: secret}, nil, smtptest.On("AUTH", reply("454 4.7.0 later")), reasonBusy, "454"},
		"login echoed":          {smtptest.Options{TLS: true, Username: "ada", Password: secret}, nil, smtptest.On("AUTH", reply("535 wrong: "+secret)), reasonAuth, "535"},
		"login cut":             {smtptest.Options{TLS: true, Username: "ada", Password: secret}, nil, smtptest.On("AUTH", cut), reasonUnreachable, "AUTH"},
		"odd question":          {smtptest.Options{TLS: true, Username: "ada", Password: secret}, nil, smtptest.On("AUTH", reply("334 !!!")), reasonAuth, "questions"},
		"no mechanism":          {smtptest.Options{TLS: true, Username: "ada", Password: secret, Mechanisms: []string{"CRAM-MD5"}}, nil, nil, reasonAuth, "PLAIN or LOGIN"},
		"login wanted": {smtptest.Options{TLS: true, Username: "ada", Password: secret}, func(d *config.Destination) { d.Username, d.Password = "", "" }, nil,
			reasonAuth, "set username and password"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := secured(t, c.options, c.change)
			s.SetFault(c.fault)
			fault := openFault(t, p)
			require.Equal(t, c.reason, fault.Reason, fault.Detail)
			require.Contains(t, fault.Detail, c.names)
			require.Empty(t, s.Mails())
			if name == "no STARTTLS" {
				require.NotContains(t, strings.Join(commands(s), "\n"), "AUTH", "no password without TLS")
			}
		})
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end   time.Time
		host  string
		names string
	}{
		"another host's": {time.Now().Add(time.Hour), "mail.example.com", "another host's"},
		"run out":        {time.Now().Add(-time.Hour), "127.0.0.1", "run out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certificate, roots := smtptest.Issue(t, c.end, c.host)
			for _, o := range []smtptest.Options{{TLS: true, Certificate: &certificate}, {StartTLS: true, Certificate: &certificate}} {
				p, _ := secured(t, o, nil)
				p.tls.RootCAs = roots
				fault := openFault(t, p)
				require.Equal(t, reasonTLS, fault.Reason)
				require.Contains(t, fault.Detail, c.names)
			}
		})
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	for range 5 {
		requireDelivered(t, p, mailTo(with(nil), ada))
	}
	s.SetFault(smtptest.For(bob, "RCPT", reply("550 5.1.1 no")))
	result, fault := publish(t, p, mailTo(with(nil), bob))
	require.Nil(t, fault)
	require.Equal(t, relay.OutcomeRejected, result.Outcome)
	s.SetFault(smtptest.For(bob, "DOT", reply("450 4.2.0 later")))
	result, _ = publish(t, p, mailTo(with(nil), bob))
	require.Equal(t, relay.OutcomeRetry, result.Outcome)
	requireDelivered(t, p, mailTo(with(nil), ada))
	require.Equal(t, 1, s.Sessions(), "a refusal doesn't cost the connection")
	require.Len(t, s.MailsTo(ada), 6)
}

func TestConnectionsAreAsManyAsCalls(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				results, _ := p.Publish(t.Context(), []*relay.Message{mailTo(with(nil), ada)})
				if results[0].Outcome != relay.OutcomeDelivered {
					t.Errorf("%+v", results)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, s.Mails(), 20)
	require.LessOrEqual(t, s.Sessions(), 4)
	require.NoError(t, p.Close())
	require.Eventually(t, func() bool { return s.Open() == 0 }, ample, time.Millisecond)
}

func TestDeadIdleConnectionCostsNoMail(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(*smtptest.Server){
		"cut at once":  func(s *smtptest.Server) { s.CutAll() },
		"cut at MAIL":  func(s *smtptest.Server) { s.SetFault(onFirst("MAIL", cut)) },
		"ended by 421": func(s *smtptest.Server) { s.SetFault(onFirst("MAIL", reply("421 4.4.2 idle for too long"))) },
		"ended by 421, shut": func(s *smtptest.Server) {
			s.SetFault(onFirst("MAIL", smtptest.Fault{Reply: "421 4.4.2 idle", Cut: true}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := start(t)
			requireDelivered(t, p, mailTo(with(nil), ada))
			die(s)
			requireDelivered(t, p, mailTo(with(nil), ada))
			require.Equal(t, 2, s.Sessions())
			require.Len(t, s.Mails(), 2)
		})
	}
}

// onFirst is a fault of the first connection alone.
func onFirst(verb string, fault smtptest.Fault) func(smtptest.Command) smtptest.Fault {
	return func(c smtptest.Command) smtptest.Fault {
		if c.Verb == verb && c.Session == 1 {
			return fault
		}
		return smtptest.Fault{}
	}
}

func TestTransactionThatHasBegunIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"RCPT", "DATA", "DOT"} {
		p, s := start(t)
		requireDelivered(t, p, mailTo(with(nil), ada))
		s.SetFault(smtptest.On(verb, smtptest.Fault{Cut: true, Accept: true}))
		result, _ := publish(t, p, mailTo(with(nil), bob))
		require.Contains(t, []relay.Outcome{relay.OutcomeBack, relay.OutcomeUnknown}, result.Outcome)
		require.Equal(t, verb == "DOT", result.Outcome == relay.OutcomeUnknown)
		require.Equal(t, 1, s.Sessions(), verb)
	}
}

func TestConnectionLeavesAfterManyMails(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	for range maxMails + 1 {
		requireDelivered(t, p, mailTo(with(nil), ada))
	}
	require.Equal(t, 2, s.Sessions())
}

func TestIdleConnectionLeavesInTime(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	requireDelivered(t, p, mailTo(with(nil), ada))
	c := p.idle.get()
	require.NotNil(t, c)
	p.idle.put(c)
	require.Equal(t, 1, s.Open())
	p.idle.reap(c) // as its timer would
	require.Nil(t, p.idle.get())
	p.idle.wg.Wait()
	require.Eventually(t, func() bool { return slices.Contains(commands(s), "QUIT") }, ample, time.Millisecond, "it says goodbye")
	p.idle.reap(c)
	requireDelivered(t, p, mailTo(with(nil), ada))
	require.Equal(t, 2, s.Sessions())
}

func TestServersSizeLimitRejectsBeforeSending(t *testing.T) {
	t.Parallel()
	p, s := start(t, "SIZE 2000")
	requireDelivered(t, p, mailTo(with(nil), ada))
	result, fault := publish(t, p, mailTo(with(doc{"text": strings.Repeat("x", 2000)}), ada))
	require.Nil(t, fault)
	require.Equal(t, relay.OutcomeRejected, result.Outcome)
	require.Equal(t, "message_too_large", result.Reason)
	require.Contains(t, result.Detail, "2000")
	requireDelivered(t, p, mailTo(with(nil), bob))
	require.Equal(t, 1, s.Sessions())
	for _, unlimited := range []string{"SIZE", "SIZE 0"} {
		p, _ := start(t, unlimited)
		requireDelivered(t, p, mailTo(with(doc{"text": strings.Repeat("x", 20000)}), ada))
	}
}

func TestServerKnowsUsByAName(t *testing.T) {
	t.Parallel()
	_, s := start(t)
	name := strings.TrimPrefix(commands(s)[1], "EHLO ")
	require.True(t, name == "[127.0.0.1]" || strings.Contains(name, "."), name)
}

func TestLoginAnswersTwoQuestionsAlone(t *testing.T) {
	t.Parallel()
	l := &login{username: "u", password: "p"}
	mechanism, initial, err := l.Start()
	require.NoError(t, err)
	require.Equal(t, "LOGIN", mechanism)
	require.Nil(t, initial)
	for _, want := range []string{"u", "p"} {
		answer, err := l.Next([]byte("what?"))
		require.NoError(t, err)
		require.Equal(t, want, string(answer))
	}
	_, err = l.Next(nil)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "p\x00")
}

func TestDeadIdleConnectionRejectsNothing(t *testing.T) {
	t.Parallel()
	p, s := start(t, "SMTPUTF8")
	s.SetFault(smtptest.On("RCPT", reply("550 5.1.1 no")))
	result, _ := publish(t, p, mailTo(with(nil), ada))
	require.Equal(t, relay.OutcomeRejected, result.Outcome)
	s.SetFault(nil)
	s.CutAll()
	requireDelivered(t, p, mailTo(with(doc{"to": "jürgen@example.com"}), "jürgen@example.com"))
	require.Equal(t, 2, s.Sessions())
}
