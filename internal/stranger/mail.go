package stranger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// MailOptions is what a mail server wants.
type MailOptions struct {
	TLS       string // none, starttls or tls
	Mechanism string // of AUTH: PLAIN, LOGIN, or empty for no login
	Username  string
	Password  string
	// Certificate and Key are files, in PEM.
	Certificate, Key string
}

// MailServer is an aiosmtpd.
type MailServer struct {
	Port  int
	lines *bufio.Reader
}

// Mail is one as Python's parser has it.
type Mail struct {
	From     string            `json:"from"`
	To       []string          `json:"to"`
	Options  []string          `json:"options"` // of MAIL
	Subject  string            `json:"subject"`
	Headers  map[string]string `json:"headers"`
	Names    []string          `json:"names"` // in To
	Parts    []MailPart        `json:"parts"` // those that hold no others
	Defects  []string          `json:"defects"`
	Longest  int               `json:"longest"` // line, in bytes
	User     string            `json:"user"`
	Security bool              `json:"tls"`
}

// MailPart is a body of a mail.
type MailPart struct {
	Media  string `json:"media"`
	Method string `json:"method"`
	File   string `json:"file"`
	Body   []byte `json:"body"`
}

// StartMail runs an aiosmtpd until the test ends.
func StartMail(t testing.TB, o MailOptions) *MailServer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", filepath.Join(root(t), "internal", "stranger", "testdata", "mail.py"),
		o.TLS, o.Mechanism, o.Username, o.Password, o.Certificate, o.Key)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// It ends with its standard input, and that when we die.
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start(), "Debian's python3 is needed, and python3-aiosmtpd; `make test` installs them, or .ci/install mail")
	t.Cleanup(func() {
		cancel()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait() // killed
	})
	s := &MailServer{lines: bufio.NewReader(stdout)}
	s.Port, err = strconv.Atoi(s.line(t, &stderr))
	require.NoError(t, err)
	return s
}

// Next waits for the next mail.
func (s *MailServer) Next(t testing.TB) Mail {
	t.Helper()
	var m Mail
	require.NoError(t, json.Unmarshal([]byte(s.line(t, nil)), &m))
	return m
}

// line reads one from the process, within patience.
func (s *MailServer) line(t testing.TB, stderr *bytes.Buffer) string {
	t.Helper()
	type result struct {
		text string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		text, err := s.lines.ReadString('\n')
		got <- result{strings.TrimSpace(text), err}
	}()
	select {
	case r := <-got:
		require.NoError(t, r.err, "aiosmtpd doesn't start; `make test` installs it, or .ci/install mail: %s", stderr)
		return r.text
	case <-time.After(patience):
		require.FailNow(t, "aiosmtpd says nothing")
		return ""
	}
}
