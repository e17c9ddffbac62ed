package smtp

import (
	"encoding/json"
	"io"
	"mime/quotedprintable"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/publishertest"
	"pgrelay/internal/smtptest"
	"pgrelay/relay"
)

func TestContract(t *testing.T) {
	t.Parallel()
	publishertest.Run(t, harness)
}

func harness(t *testing.T, timeout time.Duration) publishertest.Harness {
	s := smtptest.Start(t, smtptest.Options{})
	d := destination(s)
	d.Timeout = config.Duration(timeout)
	p, err := New(d, Options{})
	require.NoError(t, err)
	return publishertest.Harness{
		Publisher: p,
		Received:  func() []publishertest.Received { return received(t, s) },
		Hang: func(hung func()) {
			s.SetFault(func(c smtptest.Command) smtptest.Fault {
				if c.Verb != "DOT" {
					return smtptest.Fault{}
				}
				hung()
				return hang
			})
		},
		Break: func() { s.SetFault(smtptest.On("MAIL", cut)) },
		Dress: dress,
		Bad:   &relay.Message{Body: `"`, Recipient: ada},
	}
}

// dress puts the body into a mail's text. A text has lines, whose ends are all alike.
func dress(m *relay.Message) {
	m.Recipient, m.Group, m.Attributes = ada, "", nil
	m.Body = letterWith(strings.ReplaceAll(m.Body, "\r", "\n"))
}

func letterWith(text string) string {
	body, err := json.Marshal(map[string]string{"to": ada, "subject": "s", "text": text})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// received makes each mail the document again that it was made of.
func received(t *testing.T, s *smtptest.Server) []publishertest.Received {
	var list []publishertest.Received
	for _, m := range s.Mails() {
		text, err := io.ReadAll(quotedprintable.NewReader(read(t, m.Data).Body))
		require.NoError(t, err)
		// DATA ends with a line's end.
		plain := strings.TrimSuffix(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
		list = append(list, publishertest.Received{Body: letterWith(plain), Attributes: map[string]string{}})
	}
	return list
}
