package config

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse: no file brings the reader down, and each is either a configuration or
// has a problem that names a line of it.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile(exampleFile)
	require.NoError(f, err)
	f.Add(example)
	for _, text := range []string{
		file(""), "", "---\n---\n", "a: &a [*a]\noutboxes: *a\n", "\xef\xbb\xbflog: {}\n", "\xff\xfea\x00", "? [a]\n: b\n", "log:\n\tlevel: x\n",
		destination("{type: sqs, queue: 'arn:aws:sqs:a:1:b'}"), destination("{type: sqs, queue: 'http://[::1'}"),
		outbox("table: '\"a\"\".b'\norder_by: [a, b]"), route("- {kind: '*a*', to: x, body: '{{range $k, $v := .a}}{{end}}', delay: ${V}}"),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data, env{"V": "v"}.lookUp)
		if err == nil {
			require.NotEmpty(t, c.Outboxes)
			return
		}
		require.Nil(t, c)
		var problems Problems
		require.ErrorAs(t, err, &problems)
		require.NotEmpty(t, problems)
		for _, p := range problems {
			require.Positive(t, p.Line)
			require.LessOrEqual(t, p.Line, 2+strings.Count(strings.NewReplacer("\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(string(data)), "\n"), p)
			require.NotEmpty(t, p.Text)
		}
	})
}
