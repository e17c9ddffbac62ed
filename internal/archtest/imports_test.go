package archtest_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrows says what a package of the program may import of ours.
var arrows = map[string][]string{
	"cmd/pgrelay": {"internal/cli"},
	"internal/cli": {
		"internal/admin", "internal/check", "internal/config", "internal/status", "migrations", "poller", "relay",
		"relay/smtp", "relay/sqs", "relay/stdout", "replication",
	},
	"poller":          {"internal/config", "relay"},
	"replication":     {"internal/config", "relay"},
	"relay/smtp":      {"internal/config", "relay"},
	"relay/sqs":       {"internal/config", "relay"},
	"relay/stdout":    {"internal/config", "relay"},
	"relay":           {"internal/config"},
	"migrations":      {},
	"internal/admin":  {},
	"internal/check":  {"internal/config", "migrations", "relay", "replication"},
	"internal/config": {},
	"internal/status": {"relay", "replication"},
	// The examples' runners play on a stage; nothing else of them knows ours.
	"examples/booking":  {"internal/smtptest", "internal/stage"},
	"examples/calendar": {"internal/stage"},
	"examples/consumer": {},
}

// support is what serves tests and the demo: it may import anything, and of the program
// nothing may import it.
var support = []string{
	"internal/archtest", "internal/chaos", "internal/configdoc", "internal/demo", "internal/deploytest", "internal/e2e",
	"internal/exampletest", "internal/pgtest", "internal/proctest", "internal/protocol",
	"internal/publishertest", "internal/smtptest", "internal/sqsfacts", "internal/sqstest", "internal/sqstest/sqsd", "internal/stage", "internal/stranger",
}

// libraries says which packages of the program may know a library.
var libraries = map[string][]string{
	"github.com/aws/":            {"examples/consumer", "relay/sqs"},
	"github.com/emersion/":       {"relay/smtp"},
	"github.com/jackc/pglogrepl": {"replication"},
	"github.com/jackc/pgx/": {
		"examples/booking", "examples/calendar", "examples/consumer", "internal/check", "internal/cli", "internal/config", "internal/status", "migrations", "poller",
		"relay", "replication",
	},
	"github.com/pressly/goose/":    {"migrations"},
	"github.com/spf13/cobra":       {"internal/cli"},
	"github.com/stretchr/testify/": {},
	"testing":                      {},
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	packages := list(t)
	require.NotEmpty(t, packages)
	for _, p := range packages {
		require.Empty(t, violations(p), p.name())
	}
}

func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, imports string
		want          bool
	}{
		"up an arrow":                  {"relay", "pgrelay/relay/sqs", true},
		"down an arrow":                {"relay/sqs", "pgrelay/relay", false},
		"sideways":                     {"poller", "pgrelay/replication", true},
		"test code in the program":     {"relay", "pgrelay/internal/pgtest", true},
		"the program in test code":     {"internal/demo", "pgrelay/relay", false},
		"a library where it isn't due": {"relay/sqs", "github.com/jackc/pgx/v5", true},
		"a library where it is due":    {"relay", "github.com/jackc/pgx/v5/pgconn", false},
		"a library that nobody owns":   {"relay", "fmt", false},
		"a test server in an example":  {"examples/calendar", "pgrelay/internal/sqstest", true},
		"a package nobody has placed":  {"relay/kafka", "fmt", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pkg{ImportPath: "pgrelay/" + c.from, Imports: []string{c.imports}}
			require.Equal(t, c.want, len(violations(p)) > 0)
		})
	}
}

// violations lists what a package may not import.
func violations(p pkg) []string {
	if slices.Contains(support, p.name()) {
		return nil
	}
	allowed, placed := arrows[p.name()]
	if !placed {
		return []string{"the package is in no table of this test"}
	}
	var found []string
	for _, path := range p.Imports {
		ours, isOurs := strings.CutPrefix(path, "pgrelay/")
		if isOurs && !slices.Contains(allowed, ours) {
			found = append(found, path)
		}
		for library, knowers := range libraries {
			if strings.HasPrefix(path, library) && !slices.Contains(knowers, p.name()) {
				found = append(found, path)
			}
		}
	}
	return found
}

// pkg is a package as `go list` prints it; Imports leaves out those of its tests.
type pkg struct {
	ImportPath string
	Imports    []string
}

func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, "pgrelay/") }

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "pgrelay/...")
	out, err := cmd.Output()
	require.NoError(t, err)
	var packages []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}
