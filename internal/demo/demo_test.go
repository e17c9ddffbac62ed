package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/exampletest"
	"pgrelay/internal/stage"
)

func TestTheDemoPlaysToItsEndAndItsCountAddsUp(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	err := stage.Run(t.Context(), &printed, exampletest.Build(t), play())
	require.NoError(t, err, "%s", printed.String())
	for _, act := range acts(nil) {
		require.Contains(t, printed.String(), act.Title)
	}
	for line := range strings.Lines(printed.String()) {
		line = strings.TrimSuffix(line, "\n")
		require.LessOrEqual(t, utf8.RuneCountInString(line), stage.Width, line)
	}
}

func TestCtrlCLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	binary, temp := exampletest.Build(t), t.TempDir()
	// The server may run as somebody else, who has to get there.
	require.NoError(t, os.Chmod(filepath.Dir(temp), 0o711))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-pgrelay", binary)
	cmd.Env = append(os.Environ(), asProcess+"=1", "TMPDIR="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said bytes.Buffer
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.Contains(lines.Text(), "SQS answers 503") {
			require.NotEmpty(t, processes(t, temp))
			// A terminal's Ctrl-C goes to the whole group.
			require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, said.String())
	require.Equal(t, 1, exit.ExitCode(), said.String())
	require.Contains(t, said.String(), stage.ErrStopped.Error())
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, processes(t, temp))
	require.Empty(t, processes(t, binary))
}

func TestTheDemoFailsWhenThereIsNoProgramToShow(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	require.ErrorIs(t, stage.Run(t.Context(), &printed, filepath.Join(t.TempDir(), "pgrelay"), play()), os.ErrNotExist)
}

func TestTheDemoFailsWhenTheRelayEndsByItself(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("true")
	require.NoError(t, err)
	var printed bytes.Buffer
	require.ErrorContains(t, stage.Run(t.Context(), &printed, program, play()), "pgrelay run has ended")
}

// processes lists the command lines that name a path.
func processes(t *testing.T, path string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		require.NoError(t, err)
		if bytes.Contains(line, []byte(path)) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found
}
