package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type alert struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	type file struct {
		Groups []struct{ Rules []alert }
	}
	var all []alert
	for _, group := range documents[file](t, "deploy/prometheus/rules.yaml")[0].Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

func TestAlertsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	for _, a := range alerts(t) {
		requireMetrics(t, a.Expr)
	}
}

func TestEveryAlertHasASectionInTheRunbookATestAndASeverity(t *testing.T) {
	t.Parallel()
	tested := read(t, "deploy/prometheus/rules_test.yaml")
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		require.Equal(t, "docs/runbook.md#"+strings.ToLower(a.Alert), a.Annotations["runbook"])
		require.NotEmpty(t, a.Annotations["summary"], a.Alert)
		require.NotEmpty(t, a.Annotations["description"], a.Alert)
		require.Contains(t, []string{"critical", "warning"}, a.Labels["severity"], a.Alert)
		require.Contains(t, tested, a.Alert)
	}
	var sections []string
	for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(read(t, "docs/runbook.md"), -1) {
		sections = append(sections, heading[1])
	}
	require.Equal(t, names, sections, "the runbook has the alerts in their order, and nothing else")
}

func TestAlertsFireForTheirCauseAlone(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", filepath.Join(root, "deploy/prometheus/rules_test.yaml"))
}

// promtool runs Prometheus's tool, which has to be there: `make test` fetches it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		path = filepath.Join(root, "bin", "promtool")
		_, err = os.Stat(path)
	}
	require.NoError(t, err, "there is no promtool: run `make test`, or `.ci/install alerts`")
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
