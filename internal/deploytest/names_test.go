package deploytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"pgrelay/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// documents are a YAML file's.
func documents[T any](t *testing.T, path string) []T {
	t.Helper()
	var all []T
	decoder := yaml.NewDecoder(strings.NewReader(read(t, path)))
	for {
		var one T
		if err := decoder.Decode(&one); err != nil {
			require.EqualError(t, err, "EOF")
			require.NotEmpty(t, all, path)
			return all
		}
		all = append(all, one)
	}
}

var (
	tableLine  = regexp.MustCompile("(?m)^\\| `(pgrelay_[a-z_]+)` \\| ([a-z]+) \\|")
	metricName = regexp.MustCompile(`\bpgrelay_[a-z_]+\b`)
)

// metrics are the names of docs/monitoring.md as PromQL knows them: a histogram has three.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range tableLine.FindAllStringSubmatch(read(t, "docs/monitoring.md"), -1) {
		if line[2] != "histogram" {
			all[line[1]] = true
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			all[line[1]+suffix] = true
		}
	}
	require.NotEmpty(t, all)
	return all
}

// requireMetrics says that an expression asks for metrics, and for none that isn't there.
func requireMetrics(t *testing.T, expr string) {
	t.Helper()
	named := metricName.FindAllString(expr, -1)
	require.NotEmpty(t, named, expr)
	for _, name := range named {
		require.Contains(t, metrics(t), name, expr)
	}
}
