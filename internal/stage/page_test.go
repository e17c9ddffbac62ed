package stage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLongLinesAreBroken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lines, want []string }{
		"short ones stay": {[]string{"NAME  AGE", "", "x     1"}, []string{"NAME  AGE", "", "x     1"}},
		"a table between its columns": {
			[]string{"NAME               COLOUR  SIZE", "a b                light   9"},
			[]string{"NAME               ", "a b                ", "        COLOUR  SIZE", "        light   9"},
		},
		"words":                {[]string{"eins zwei drei vier fünf sechs"}, []string{"eins zwei drei vier", "        fünf sechs"}},
		"a long word is whole": {[]string{"donaudampfschifffahrtsgesellschaft"}, []string{"donaudampfschifffahrtsgesellschaft"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, layOut(c.lines, 22))
		})
	}
}
