package smtp

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/relay"
)

func TestDocumentsOfTheManualAreMails(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	found := 0
	for _, path := range []string{"../../docs/mail.md", "../../README.md"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, block := range regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			m := &relay.Message{Body: block[1]}
			require.NoError(t, p.Check(m), block[1])
			for _, recipient := range p.Recipients(m) {
				m.Recipient = recipient
				requireDelivered(t, p, m)
				found++
			}
		}
	}
	require.Len(t, s.Mails(), found)
	require.Equal(t, 7, found)
}

// TestReasonsAreInTheManual looks for the reasons of dead rows and of pauses where people look.
func TestReasonsAreInTheManual(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, f := range files {
		if !regexp.MustCompile(`^[a-z]+\.go$`).MatchString(f.Name()) {
			continue
		}
		code, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?:refuse\(|Rejection\{Reason: |reason[A-Z][A-Za-z]+ += )"([a-z0-9_]+)"`).FindAllStringSubmatch(string(code), -1) {
			require.True(t, strings.Contains(string(manual), "`"+m[1]+"`"), "%s in %s", m[1], f.Name())
			found[m[1]] = true
		}
	}
	require.GreaterOrEqual(t, len(found), 16)
}
