package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const exampleFile = "../../config.example.yaml"

var exampleEnv = env{"DATABASE_URL": "postgres://relay@localhost/bookings"}

func TestExampleLoadsAsItIsShipped(t *testing.T) {
	t.Parallel()
	c, err := Load(exampleFile, exampleEnv.lookUp)
	require.NoError(t, err)
	require.Equal(t, "bookings", c.Outboxes[0].Routes[0].To)
	require.Equal(t, Default().Relay, c.Relay)
}

func TestExampleStartsWithinTheFirstScreen(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	screen := strings.Join(strings.SplitN(string(data), "\n", 25)[:24], "\n")
	_, err = Parse("screen", []byte(screen), exampleEnv.lookUp)
	require.NoError(t, err)
}

// reference is the example's second part, with the settings that are commented out.
func reference(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	_, commented, found := strings.Cut(string(data), "# Every key.")
	require.True(t, found)
	setting := regexp.MustCompile(`^#(  +(- )?)?[a-z]`)
	var lines []string
	for line := range strings.Lines(commented) {
		if setting.MatchString(line) {
			lines = append(lines, line[1:])
		}
	}
	return []byte(strings.Join(lines, ""))
}

func TestExampleReferenceLoadsAndNamesEveryDefault(t *testing.T) {
	t.Parallel()
	c, err := Parse("reference", reference(t), exampleEnv.lookUp)
	require.NoError(t, err)
	defaults := Default()
	defaults.File = "reference"
	defaults.Database, defaults.Destinations, defaults.Outboxes, defaults.Scheduler.Jobs = c.Database, c.Destinations, c.Outboxes, c.Scheduler.Jobs
	require.Equal(t, defaults, c)

	entry := reflect.New(reflect.TypeFor[Destination]()).Elem()
	setDefaults(entry)
	want, ok := entry.Interface().(Destination)
	require.True(t, ok)
	got := c.Destinations["bookings"]
	want.Type, want.Queue = got.Type, got.Queue
	require.Equal(t, want, got)
	require.Equal(t, OrderKey, c.Outboxes[0].Routes[0].Order)
}

func TestExampleReferenceGivesEveryKey(t *testing.T) {
	t.Parallel()
	src := newSource("reference")
	d := &decoder{source: src, env: exampleEnv.lookUp}
	d.value("", document(src, reference(t)), reflect.ValueOf(Default()).Elem())
	require.NoError(t, src.err())
	given := map[string]bool{}
	for key := range src.lines {
		key = regexp.MustCompile(`\[\d+\]`).ReplaceAllString(key, "")
		key = regexp.MustCompile(`^destinations\.[a-z]+`).ReplaceAllString(key, "destinations")
		given[key] = true
	}
	requireKeys(t, given, "", reflect.TypeFor[Config]())
}

func requireKeys(t *testing.T, given map[string]bool, key string, typ reflect.Type) {
	t.Helper()
	switch typ.Kind() {
	case reflect.Map, reflect.Slice:
		requireKeys(t, given, key, typ.Elem())
	case reflect.Struct:
		for field := range typ.Fields() {
			if name := field.Tag.Get("yaml"); name != "-" {
				require.NotEmpty(t, name, "%s.%s has no yaml tag", typ, field.Name)
				require.Contains(t, given, join(key, name))
				requireKeys(t, given, join(key, name), field.Type)
			}
		}
	}
}

func TestExampleKeepsTheOrderOfTheKeys(t *testing.T) {
	t.Parallel()
	text, last := "\n"+string(reference(t)), -1
	for field := range reflect.TypeFor[Config]().Fields() {
		if field.Name == "File" {
			continue
		}
		at := strings.Index(text, "\n"+field.Tag.Get("yaml")+":")
		require.Greater(t, at, last, field.Name)
		last = at
	}
}
