package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// do runs a command line and gives its exit code and what it wrote.
func do(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = execute(context.Background(), args, &app{stdout: &out, stderr: &err, env: environment(env)})
	return code, out.String(), err.String()
}

// commands are all of them, those of cobra aside.
func commands(parent *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{parent}
	for _, cmd := range parent.Commands() {
		if cmd.Name() != "completion" {
			all = append(all, commands(cmd)...)
		}
	}
	return all
}

func TestEachCommandExplainsItself(t *testing.T) {
	t.Parallel()
	for _, cmd := range commands(newRoot(&app{})) {
		path := cmd.CommandPath()
		require.NotEmpty(t, cmd.Short, path)
		require.NotContains(t, cmd.Short, "\n", path)
		require.Contains(t, cmd.Example, "  pgrelay", path)
		for line := range strings.Lines(cmd.Long) {
			require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), usualWidth, "%s: %s", path, line)
		}
		code, out, _ := do(t, nil, append(strings.Fields(path)[1:], "--help")...)
		require.Zero(t, code, path)
		require.Contains(t, out, strings.SplitN(cmd.Example, "\n", 2)[0], path)
		require.Contains(t, out, "--config", path)
	}
}

func TestExamplesAreCommandLinesThatTheProgramTakes(t *testing.T) {
	t.Parallel()
	for _, cmd := range commands(newRoot(&app{})) {
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " | ")
			if strings.HasPrefix(line, "pgrelay help") || strings.HasPrefix(line, "pgrelay version") {
				continue // they need no configuration
			}
			code, _, stderr := do(t, nil, strings.Fields(line)[1:]...)
			require.Equal(t, exitUsage, code, line)
			require.Contains(t, stderr, "pgrelay.yaml", line)
		}
	}
}

func TestCommandsThatReadHaveJSON(t *testing.T) {
	t.Parallel()
	var without []string
	for _, cmd := range commands(newRoot(&app{})) {
		if !cmd.HasSubCommands() && cmd.Flags().Lookup("json") == nil {
			without = append(without, cmd.CommandPath())
		}
	}
	slices.Sort(without)
	require.Equal(t, []string{"pgrelay migrate down", "pgrelay migrate up", "pgrelay run", "pgrelay slot drop"}, without)

	code, out, _ := do(t, nil, "version", "--json")
	require.Zero(t, code)
	require.True(t, json.Valid([]byte(out)), out)
}

func TestHelpNamesTheWayToAFirstMessageAndTheCures(t *testing.T) {
	t.Parallel()
	_, out, _ := do(t, nil, "help")
	for _, word := range []string{"pgrelay.yaml", "migrate up", "check", "run", "INSERT INTO", "status", "explain", "dead list", "completion"} {
		require.Contains(t, out, word)
	}
}

func TestAWrongCommandLineIsExitTwo(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"nonsense", "check --nonsense", "check more", "dead nonsense", "render", "explain --table t", "republish --table t",
		"dead retry --table t", "dead retry --table t --all --id 1", "completion bash more", "completion nonsense", "-c",
	} {
		code, out, stderr := do(t, nil, strings.Fields(line)...)
		require.Equal(t, exitUsage, code, line)
		require.Empty(t, out, line)
		require.NotEmpty(t, stderr, line)
	}
}

func TestShellsComplete(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, _ := do(t, nil, "completion", shell)
		require.Zero(t, code, shell)
		require.Contains(t, out, "pgrelay", shell)
	}
	file := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
database: {url: "${DATABASE_URL}"}
destinations: {console: {type: stdout}}
outboxes:
  - {table: pgrelay.outbox_events, routes: [{kind: "*", to: console}]}
  - {table: app.mails, routes: [{kind: "*", to: console}]}
`), 0o600))
	line := []string{cobra.ShellCompNoDescRequestCmd, "dead", "list", "-c", file, "--table", ""}
	_, out, _ := do(t, map[string]string{"DATABASE_URL": "postgres://localhost/shop"}, line...)
	require.Equal(t, "pgrelay.outbox_events\napp.mails\n:4\n", out)
	_, out, _ = do(t, nil, line...)
	require.Equal(t, ":1\n", out, "nothing is made up without the configuration")
	_, out, _ = do(t, nil, cobra.ShellCompNoDescRequestCmd, "check", "")
	require.Equal(t, ":4\n", out, "no files where none is taken")
}
