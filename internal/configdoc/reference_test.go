package configdoc

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const document = "../../docs/configuration.md"

func example(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../config.example.yaml")
	require.NoError(t, err)
	return string(text)
}

func TestTheReferenceIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := Reference(example(t))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(want), 0o644))
	}
	got, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go generate ./internal/configdoc")
}

func TestEachKeyOfTheConfigurationIsExplained(t *testing.T) {
	t.Parallel()
	comments := map[string]string{}
	for _, e := range entries(example(t)) {
		comments[e.path] = e.comment
	}
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Slice:
			require.NotEmpty(t, comments[path], path)
			if typ.Elem().Kind() == reflect.Struct {
				walk(path, typ.Elem())
			}
		case reflect.Map:
			if typ.Elem().Kind() == reflect.Struct {
				walk(path+".NAME", typ.Elem())
			} else {
				require.NotEmpty(t, comments[path], path)
			}
		case reflect.Struct:
			for f := range typ.Fields() {
				if name := f.Tag.Get("yaml"); name != "-" {
					walk(strings.TrimPrefix(path+"."+name, "."), f.Type)
				}
			}
		default:
			require.NotEmpty(t, comments[path], path)
		}
	}
	walk("", reflect.TypeFor[config.Config]())
}

func TestAKeyThatTheProgramHasNotIsRefused(t *testing.T) {
	t.Parallel()
	_, err := Reference("# Every key.\n\n#relay:\n#  sise: 3\n")
	require.ErrorContains(t, err, "relay.sise")
}

// TestRangesAreThoseOfTheProgram tries both ends of each range that a comment names, and what lies beyond.
func TestRangesAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	bounds := regexp.MustCompile(`\b([0-9][0-9A-Za-z.]*) to ([0-9](?:[0-9A-Za-z.]*[0-9A-Za-z])?)`)
	tried := 0
	for _, e := range entries(example(t)) {
		m := bounds.FindStringSubmatch(e.comment)
		if m == nil || strings.HasPrefix(e.path, "outboxes") || strings.HasPrefix(e.path, "scheduler.jobs") || e.path == "replication.slot" || e.path == "replication.publication" {
			continue // a list's, or the length of a name
		}
		tried++
		require.NoError(t, set(e.path, m[1]), e.path)
		require.NoError(t, set(e.path, m[2]), e.path)
		require.ErrorContains(t, set(e.path, beyond(m[2])), "must be between", e.path)
	}
	require.Equal(t, 18, tried)
}

// beyond is a quantity that is larger.
func beyond(quantity string) string {
	return regexp.MustCompile(`[0-9]+`).ReplaceAllString(quantity, "${0}1")
}

// set loads a configuration that gives one key, and for a pause or a retry a pair that suits.
func set(path, value string) error {
	names := strings.Split(path, ".")
	last := names[len(names)-1]
	pair := fmt.Sprintf("%s: %s", last, value)
	switch {
	case last == "initial":
		pair += ", max: " + value
	case last == "max":
		pair += ", initial: 1ms"
	}
	yaml := "{" + pair + "}"
	for i := len(names) - 2; i >= 0; i-- {
		switch {
		case names[i] == "NAME" && last == "port":
			yaml = "{type: smtp, host: mail, from: a@example.com, " + yaml[1:]
		case names[i] == "NAME":
			yaml = "{type: stdout, " + yaml[1:]
		}
		yaml = "{" + names[i] + ": " + yaml + "}"
	}
	sections := map[string]string{
		"database":     `{url: "postgres://localhost/db"}`,
		"destinations": "{NAME: {type: stdout}}",
		"outboxes":     `[{table: t, routes: [{kind: "*", to: NAME}]}]`,
	}
	delete(sections, names[0])
	text := yaml[1:len(yaml)-1] + "\n"
	for name, section := range sections {
		text += name + ": " + section + "\n"
	}
	_, err := config.Parse("set", []byte(text), func(string) (string, bool) { return "", false })
	return err
}
