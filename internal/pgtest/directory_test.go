package pgtest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDirectoryIsRemovedWhenItsProcessIsGone(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	old := time.Now().Add(-time.Hour)
	mkdir := func(name string) string {
		path := filepath.Join(parent, directoryPrefix+name)
		require.NoError(t, os.Mkdir(path, 0o700))
		require.NoError(t, os.Chtimes(path, old, old))
		return path
	}
	abandoned, held, young := mkdir("abandoned"), mkdir("held"), mkdir("young")
	require.NoError(t, os.Chtimes(young, time.Now(), time.Now()))
	lock, err := os.Open(held)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lock.Close()) })
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))

	removeAbandoned(parent)
	require.NoDirExists(t, abandoned)
	require.DirExists(t, held)
	require.DirExists(t, young)
}

func TestNewestServerIsTakenAndClientsAreNone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	bin := func(version string, programs ...string) string {
		dir := filepath.Join(root, version, "bin")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		for _, program := range programs {
			require.NoError(t, os.WriteFile(filepath.Join(dir, program), nil, 0o700))
		}
		return dir
	}
	nine, sixteen := bin("9.6", "postgres"), bin("16", "postgres")
	require.Equal(t, sixteen, newest([]string{nine, bin("13", "postgres"), sixteen, bin("17", "psql")}))
	require.Empty(t, newest([]string{nine, bin("17", "psql")}))
}
