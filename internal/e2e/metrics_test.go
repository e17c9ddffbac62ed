package e2e_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/sqstest"
)

// monitoring holds the table of metrics that the test compares; -update writes it anew.
const monitoring = "../../docs/monitoring.md"

var update = flag.Bool("update", false, "write the table of metrics in docs/monitoring.md anew")

const (
	tableBegins = "<!-- metrics: go test ./internal/e2e -run Metrics -update -->\n"
	tableEnds   = "<!-- end of metrics -->\n"
)

func TestMetricsAreThoseOfTheManualAndLintClean(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"scheduler": "{jobs: [{name: nothing, every: 1h, sql: SELECT 1}]}"})
	var refused atomic.Bool
	w.sqs.SetFault(func(request sqstest.Request) sqstest.Fault {
		if len(request.Entries) == 0 || refused.Swap(true) {
			return sqstest.Fault{}
		}
		return sqstest.Fault{Entries: map[string]sqstest.EntryFault{request.Entries[0].ID: {Code: "InternalError"}}}
	})
	p := w.start()
	w.insert("nobody's", 1) // dies
	w.insert("q", 1)        // is refused and tried again
	w.arrive(standardQueue, 1)
	w.insert("q", 1) // arrives by the stream at the first try
	w.arrive(standardQueue, 2)
	w.settled(0)

	text := ownMetrics(p)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)

	table := metricsTable(t, text)
	manual, err := os.ReadFile(monitoring)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(manual), tableBegins)
	require.True(t, ok, "%s has no table of metrics", monitoring)
	documented, after, ok := strings.Cut(rest, tableEnds)
	require.True(t, ok, "the table of metrics in %s has no end", monitoring)
	if *update {
		require.NoError(t, os.WriteFile(monitoring, []byte(before+tableBegins+table+tableEnds+after), 0o644))
		return
	}
	require.Equal(t, table, documented, "go test ./internal/e2e -run Metrics -update writes it anew")
}

// ownMetrics is what a process shows, without what every Go program shows.
func ownMetrics(p *process) string {
	status, text := p.get("/metrics")
	require.Equal(p.w.t, http.StatusOK, status)
	var own strings.Builder
	for line := range strings.Lines(text) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			own.WriteString(line)
		}
	}
	return own.String()
}

// metricsTable is the metrics' names, types, labels and help, as a table of Markdown.
func metricsTable(t *testing.T, text string) string {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), labels(f.GetMetric()[0]), f.GetHelp())
	}
	return b.String()
}

func labels(m *dto.Metric) string {
	var names []string
	for _, l := range m.GetLabel() {
		names = append(names, l.GetName())
	}
	return strings.Join(names, ", ")
}
