package deploytest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource *datasource
	Targets    []struct {
		Expr       string
		Datasource datasource
	}
}

type datasource struct{ Type, UID string }

type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Query any }
	}
	Annotations struct {
		List []struct {
			Expr       string
			Datasource datasource
		}
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(read(t, "deploy/grafana/pgrelay.json")), &d))
	return d
}

// expressions are what the dashboard asks Prometheus, with its variables filled in.
func (d dashboard) expressions() []string {
	var all []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, a.Expr)
	}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*", "$job", "db")
	for i, expr := range all {
		all[i] = fill.Replace(expr)
	}
	return all
}

func TestDashboardAsksForMetricsThatExistInPromQLThatParses(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string
		Expr   string
	}
	var rules []rule
	for _, expr := range readDashboard(t).expressions() {
		requireMetrics(t, expr)
		require.NotContains(t, expr, "$", "a variable that the dashboard does not have")
		rules = append(rules, rule{Record: "panel", Expr: expr})
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "check", "rules", "--lint=none", file)
}

func TestDashboardShowsEveryMetricAndTheSlotFirst(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	require.Equal(t, "Replication slot", d.Panels[0].Title)
	all := strings.Join(d.expressions(), "\n")
	for name := range metrics(t) {
		family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if family != "pgrelay_retention_deleted_total" { // nothing that anyone would watch
			require.Contains(t, all, family)
		}
	}
}

func TestDashboardTakesAnyDataSource(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	require.Equal(t, "datasource", d.Templating.List[0].Type)
	chosen := datasource{Type: "prometheus", UID: "${datasource}"}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "panel %d is there twice", p.ID)
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		require.Equal(t, &chosen, p.Datasource, p.Title)
		for _, target := range p.Targets {
			require.Equal(t, chosen, target.Datasource, p.Title)
		}
	}
}
