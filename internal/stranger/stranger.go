package stranger

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long Node.js may take to start: long, for a busy machine.
const patience = time.Minute

// Start runs a fauxqs without queues until the test ends, and returns its URL.
func Start(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(root(t), "internal", "stranger", "testdata")
	require.DirExists(t, filepath.Join(dir, "node_modules", "fauxqs"), "fauxqs is not installed; `make test` does that, or .ci/install stranger")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "node", "server.mjs")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// It ends with its standard input, and that when we die.
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
	})
	late := time.AfterFunc(patience, cancel)
	defer late.Stop()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		cancel()
		_ = cmd.Wait() // what it wrote is complete then
		require.NoError(t, err, "fauxqs doesn't start: %s", stderr.String())
	}
	return strings.TrimSpace(line)
}

// root is the directory of the module, above that of the package whose test this is.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above the test")
		dir = parent
	}
}
