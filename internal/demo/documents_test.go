package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

const root = "../.."

// documents are what people read first, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	examples, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	require.NoError(t, err)
	all := map[string]string{}
	for _, path := range slices.Concat(paths, examples, []string{filepath.Join(root, "README.md")}) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all[path] = string(text)
	}
	return all
}

// sources is the program's text without its tests.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	require.NoError(t, err)
	return all.String()
}

func TestConfigurationsInTheDocumentsLoad(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		value, set := map[string]string{"DATABASE_URL": "postgres://relay@localhost/shop", "SMTP_PASSWORD": "secret"}[name]
		return value, set
	}
	block := regexp.MustCompile("(?ms)^```yaml\n(database:\n.*?)^```$")
	found := 0
	for path, text := range documents(t) {
		for _, yaml := range block.FindAllStringSubmatch(text, -1) {
			_, err := config.Parse(path, []byte(yaml[1]), env)
			require.NoError(t, err, "%s:\n%s", path, yaml[1])
			found++
		}
	}
	require.NotZero(t, found)
}

func TestMetricsInTheDocumentsExist(t *testing.T) {
	t.Parallel()
	code := sources(t)
	metric := regexp.MustCompile("`(pgrelay_[a-z_]+)`")
	for path, text := range documents(t) {
		for _, m := range metric.FindAllStringSubmatch(text, -1) {
			require.True(t, strings.Contains(code, `"`+m[1]+`"`), "%s names %s", path, m[1])
		}
	}
}

// TestTheLogIsDocumented holds both directions: what the table explains is logged, and what
// is logged for a person is in the table.
func TestTheLogIsDocumented(t *testing.T) {
	t.Parallel()
	text := documents(t)[filepath.Join(root, "docs", "operating.md")]
	_, text, found := strings.Cut(text, "## What the log says")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	code := sources(t)
	name := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		first := strings.SplitN(line, "|", 3)[1]
		for _, message := range name.FindAllStringSubmatch(first, -1) {
			require.True(t, strings.Contains(code, `"`+message[1]+`"`), "nobody logs %q", message[1])
		}
	}
	logged := regexp.MustCompile(`(?s)\.(Info|Warn|Error)\(\)[^;]*?Msg\("([^"]+)"\)`)
	for _, message := range logged.FindAllStringSubmatch(code, -1) {
		require.True(t, strings.Contains(text, "`"+message[2]+"`"), "nobody explains %q", message[2])
	}
}

func TestLinksBetweenTheDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for path, text := range documents(t) {
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			target := filepath.Join(filepath.Dir(path), l[1])
			if l[1] == "" {
				target = path
			}
			if l[2] == "" {
				_, err := os.Stat(target)
				require.NoError(t, err, path)
				continue
			}
			there, err := os.ReadFile(target)
			require.NoError(t, err, path)
			var anchors []string
			for line := range strings.Lines(string(there)) {
				if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
					plain := anchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
					anchors = append(anchors, "#"+strings.ReplaceAll(plain, " ", "-"))
				}
			}
			require.Contains(t, anchors, l[2], path)
		}
	}
}

func TestTestsThatTheDocumentsNameAreThere(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range declared.FindAllStringSubmatch(string(text), -1) {
			there[name[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	for path, text := range documents(t) {
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(text, -1) {
			require.True(t, there[name], "%s: there is no %s", path, name)
		}
	}
}
