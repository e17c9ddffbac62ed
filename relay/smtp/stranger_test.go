package smtp

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/smtptest"
	"pgrelay/internal/stranger"
	"pgrelay/relay"
)

// strange makes an open publisher on a server, a mail library and a language that others wrote.
func strange(t *testing.T, o stranger.MailOptions) (*Publisher, *stranger.MailServer) {
	t.Helper()
	certificate, roots := smtptest.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	key, ok := certificate.PrivateKey.(*ecdsa.PrivateKey)
	require.True(t, ok)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	o.Certificate, o.Key = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(o.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(o.Key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
	s := stranger.StartMail(t, o)
	p, err := New(config.Destination{
		Host: "127.0.0.1", Port: s.Port, TLS: o.TLS, Username: o.Username, Password: config.Secret(o.Password),
		From: "Büro <calendar@example.org>", Concurrency: 1, Timeout: config.Duration(ample),
	}, Options{Roots: roots})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p, s
}

func TestStrangersServerTakesOurLogins(t *testing.T) {
	t.Parallel()
	for _, o := range []stranger.MailOptions{
		{TLS: config.TLSNone},
		{TLS: config.TLSStart},
		{TLS: config.TLSImplicit},
		{TLS: config.TLSStart, Mechanism: "PLAIN", Username: "ada", Password: secret},
		{TLS: config.TLSStart, Mechanism: "LOGIN", Username: "ada", Password: secret},
		{TLS: config.TLSImplicit, Mechanism: "PLAIN", Username: "ada", Password: secret},
		{TLS: config.TLSImplicit, Mechanism: "LOGIN", Username: "ada", Password: secret},
	} {
		t.Run(o.TLS+" "+o.Mechanism, func(t *testing.T) {
			t.Parallel()
			p, s := strange(t, o)
			require.NoError(t, p.Open(t.Context()))
			for _, recipient := range []string{ada, bob} {
				requireDelivered(t, p, mailTo(with(nil), recipient))
				m := s.Next(t)
				require.Equal(t, []string{recipient}, m.To)
				require.Equal(t, o.Username, m.User)
				require.Equal(t, o.TLS != config.TLSNone, m.Security)
			}
			if o.Username != "" {
				p.password = "wrong"
				require.NoError(t, p.Close())
				require.Equal(t, reasonAuth, openFault(t, p).Reason)
			}
		})
	}
}

func TestStrangersParserReadsOurMails(t *testing.T) {
	t.Parallel()
	p, s := strange(t, stranger.MailOptions{TLS: config.TLSNone})
	require.NoError(t, p.Open(t.Context()))
	text := "Grüße\n.\n..\n" + strings.Repeat("x", 3000) + "\n.\nend"
	html := "<p>" + strings.Repeat("漢字 ", 1000) + "</p>"
	subject := "Ihre Buchung für Zürich – " + strings.Repeat("bestätigt ✓ ", 20) + "!"
	d := with(doc{
		"to": []string{"Lovelace, Ada <" + ada + ">", "Jürgen Müller <" + bob + ">"}, "subject": subject, "text": text, "html": html,
		"headers":  doc{"X-Room": "Raum 7 – " + strings.Repeat("ä ", 100) + "ö"},
		"calendar": meeting(doc{"location": "Zürich", "description": strings.Repeat("Zeile\n", 50)}),
	})
	requireDelivered(t, p, mailTo(d, ada))

	m := s.Next(t)
	require.Empty(t, m.Defects)
	require.LessOrEqual(t, m.Longest, 998)
	require.Equal(t, "calendar@example.org", m.From)
	require.Equal(t, subject, m.Subject)
	require.Equal(t, []string{"Lovelace, Ada", "Jürgen Müller"}, m.Names)
	require.Equal(t, "Büro <calendar@example.org>", m.Headers["From"])
	require.Equal(t, "Raum 7 – "+strings.Repeat("ä ", 100)+"ö", m.Headers["X-Room"])
	require.Len(t, m.Parts, 4)
	require.Equal(t, strings.ReplaceAll(text, "\n", "\r\n"), string(m.Parts[0].Body))
	require.Equal(t, html, string(m.Parts[1].Body))
	entry, file := m.Parts[2], m.Parts[3]
	require.Equal(t, []string{"text/calendar", "REQUEST", ""}, []string{entry.Media, entry.Method, entry.File})
	require.Equal(t, []string{"application/ics", "", "invite.ics"}, []string{file.Media, file.Method, file.File})
	require.Equal(t, entry.Body, file.Body)
	calendar, err := ics.ParseCalendar(strings.NewReader(string(entry.Body)))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("Zeile\n", 50), value(calendar.Events()[0], ics.ComponentPropertyDescription))
}

func TestStrangersServerTakesOtherLettersThanASCIIs(t *testing.T) {
	t.Parallel()
	p, s := strange(t, stranger.MailOptions{TLS: config.TLSNone})
	require.NoError(t, p.Open(t.Context()))
	m := mailTo(with(doc{"to": "Jürgen <jürgen@bücher.example>"}), "jürgen@bücher.example")
	require.NoError(t, p.Check(m))
	require.Equal(t, []string{m.Recipient}, p.Recipients(m))
	result, fault := publish(t, p, m)
	require.Nil(t, fault)
	require.Equal(t, relay.OutcomeDelivered, result.Outcome)
	got := s.Next(t)
	require.Equal(t, []string{m.Recipient}, got.To)
	require.Contains(t, got.Options, "SMTPUTF8")
	require.Equal(t, []string{"Jürgen"}, got.Names)
}
