package cli

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pgrelay/internal/config"
)

// pty opens a terminal of a width: what is written to screen is read from keys.
func pty(t *testing.T, width uint16) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keys.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	require.NoError(t, unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: 24}))
	return keys, screen
}

func environment(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := pairs[name]
		return value, ok
	}
}

func TestATerminalTellsItsWidth(t *testing.T) {
	t.Parallel()
	for width, want := range map[uint16]int{132: 132, 0: usualWidth} {
		_, screen := pty(t, width)
		require.Equal(t, terminal{width: want, color: true}, terminalOf(screen, environment(nil)))
	}
}

func TestColoursCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	_, screen := pty(t, 80)
	for _, env := range []map[string]string{{"NO_COLOR": "1"}, {"TERM": "dumb"}} {
		require.Equal(t, terminal{width: 80}, terminalOf(screen, environment(env)), env)
	}
	require.True(t, terminalOf(screen, environment(map[string]string{"NO_COLOR": ""})).color)
}

func TestFilesAndPipesAreNoTerminals(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer file.Close() //nolint:errcheck // nothing was written
	require.Zero(t, terminalOf(file, environment(nil)))
	require.Zero(t, terminalOf(&bytes.Buffer{}, environment(nil)))
}

func TestTheLogIsColouredOnATerminalOnly(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	a := &app{stderr: &file, env: environment(nil)}
	log := a.logger(config.Log{Level: "info", Format: "console"})
	log.Info().Str("queue", "q").Msg("hello")
	require.Regexp(t, `^\S+ INF hello queue=q\n$`, file.String())
}

func TestProgressIsToldToATerminalOnly(t *testing.T) {
	t.Parallel()
	keys, screen := pty(t, 80)
	a := &app{stderr: screen, env: environment(nil)}
	tell, end := a.progress()
	end() // nothing was told, nothing is taken away
	tell(12_000)
	end()
	text := make([]byte, 100)
	n, err := keys.Read(text)
	require.NoError(t, err)
	require.Contains(t, string(text[:n]), "\r12,000 rows so far")

	var pipe bytes.Buffer
	a.stderr = &pipe
	tell, end = a.progress()
	tell(12_000)
	end()
	require.Empty(t, pipe.String())
}
