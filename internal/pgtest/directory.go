package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const directoryPrefix = "pgrelay-pgtest-"

// directory is a temporary directory that belongs to the server's account. It is
// locked for as long as its process lives, so that the next one knows which
// directories a killed binary has left.
type directory struct {
	path string
	lock *os.File
}

func newDirectory() (*directory, error) {
	tidyUp()
	path, err := os.MkdirTemp("", directoryPrefix)
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	d := &directory{path: path}
	if d.lock, err = os.Open(path); err != nil {
		return nil, fmt.Errorf("opening a directory: %w", err)
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("locking a directory: %w", err)
	}
	cred, err := account()
	if err != nil {
		return nil, err
	}
	if cred != nil {
		if err := os.Chown(path, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, fmt.Errorf("handing a directory over: %w", err)
		}
	}
	return d, nil
}

func (d *directory) remove() error {
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("removing a server's directory: %w", err)
	}
	return d.lock.Close()
}

var tidyUp = sync.OnceFunc(func() { removeAbandoned(os.TempDir()) })

// removeAbandoned clears away what killed binaries have left. The age keeps it off a
// directory that is made at this moment and not yet locked. It is a courtesy: what it
// can't remove stays, and no test depends on it.
func removeAbandoned(parent string) {
	paths, err := filepath.Glob(filepath.Join(parent, directoryPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		_ = f.Close()
	}
}
