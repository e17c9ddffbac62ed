package deploytest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
)

// load is a configuration that deploy/ ships, as pgrelay would read it there.
func load(t *testing.T, name, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(name, []byte(text), func(name string) (string, bool) {
		return "postgres://relay@db/app", name == "DATABASE_URL"
	})
	require.NoError(t, err)
	return cfg
}

// requireReachable says that probes and Prometheus get to the server from outside a container.
func requireReachable(t *testing.T, cfg *config.Config, port int) {
	t.Helper()
	require.Equal(t, fmt.Sprintf("0.0.0.0:%d", port), cfg.HTTP.Addr)
}

// requireGrace says that whoever stops pgrelay leaves it the time that its drain may take.
func requireGrace(t *testing.T, cfg *config.Config, grace time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, grace, time.Duration(cfg.Relay.ShutdownTimeout)+5*time.Second)
}

type composeFile struct {
	Services map[string]struct {
		Image   string
		Build   struct{ Target string }
		Command []string
		Grace   string `yaml:"stop_grace_period"`
		Volumes []string
	}
}

func TestComposeRunsWhatTheDockerfileBuilds(t *testing.T) {
	t.Parallel()
	cfg := load(t, "compose.pgrelay.yaml", read(t, "deploy/compose.pgrelay.yaml"))
	requireReachable(t, cfg, 9187)
	services := documents[composeFile](t, "deploy/compose.yaml")[0].Services

	relay := services["pgrelay"]
	require.Equal(t, []string{"./compose.pgrelay.yaml:/etc/pgrelay/pgrelay.yaml:ro"}, relay.Volumes)
	grace, err := time.ParseDuration(relay.Grace)
	require.NoError(t, err)
	requireGrace(t, cfg, grace)
	require.Equal(t, relay.Volumes, services["migrate"].Volumes)
	require.Equal(t, []string{"migrate", "up"}, services["migrate"].Command)

	sqs := services["sqs"]
	require.Contains(t, read(t, "Dockerfile"), "FROM scratch AS "+sqs.Build.Target+"\n")
	for _, d := range cfg.Destinations {
		require.Equal(t, "http://sqs:9324", d.Endpoint)
		require.Contains(t, sqs.Command, d.Queue)
	}
	require.Contains(t, services["postgres"].Command, "wal_level=logical")
}

func TestImagesAreStaticUnprivilegedAndGetSignals(t *testing.T) {
	t.Parallel()
	text := read(t, "Dockerfile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	require.Contains(t, text, "golang:"+version+"-")
	require.Contains(t, text, "CGO_ENABLED=0")
	images := 0
	for _, stage := range strings.Split(text, "\nFROM ")[1:] {
		if !strings.HasPrefix(stage, "scratch") {
			continue
		}
		images++
		require.Regexp(t, `(?m)^USER [1-9]\d*:[1-9]\d*$`, stage)
		require.Regexp(t, `(?m)^ENTRYPOINT \["/`, stage)
	}
	require.Equal(t, 2, images)
}

func TestUnitLeavesTheDrainItsTime(t *testing.T) {
	t.Parallel()
	unit := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(read(t, "deploy/pgrelay.service"), -1) {
		unit[line[1]] = line[2]
	}
	stop, err := time.ParseDuration(unit["TimeoutStopSec"])
	require.NoError(t, err)
	requireGrace(t, load(t, "config.example.yaml", read(t, "config.example.yaml")), stop)
	for key, value := range map[string]string{
		"KillSignal": "SIGTERM", "Restart": "always", "RestartPreventExitStatus": "2", "DynamicUser": "yes", "NoNewPrivileges": "yes",
		"ProtectSystem": "strict", "EnvironmentFile": "/etc/pgrelay/environment",
	} {
		require.Equal(t, value, unit[key], key)
	}
}
