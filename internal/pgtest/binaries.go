package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	debianBinaries = "/usr/lib/postgresql/*/bin"
	runTimeout     = 2 * time.Minute
)

var errNoBinaries = errors.New("no PostgreSQL server under " + debianBinaries +
	": `make test` installs one, PGRELAY_TEST_PGBIN names the bin directory of another")

// binDir is the directory that holds initdb and postgres.
func binDir() (string, error) {
	if dir := os.Getenv("PGRELAY_TEST_PGBIN"); dir != "" {
		return dir, nil
	}
	dirs, err := filepath.Glob(debianBinaries)
	if err != nil {
		return "", fmt.Errorf("looking for PostgreSQL: %w", err)
	}
	if dir := newest(dirs); dir != "" {
		return dir, nil
	}
	return "", errNoBinaries
}

// newest picks the bin directory of the highest major version that has a server: a
// directory is there as well where only the client is installed.
func newest(dirs []string) string {
	best, bestMajor := "", 0
	for _, dir := range dirs {
		major, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err != nil || major <= bestMajor {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			best, bestMajor = dir, major
		}
	}
	return best
}

// account is who the server runs as. PostgreSQL refuses to be root, so root becomes
// the user that Debian's package made for it; anybody else stays who they are.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("looking up who runs the server: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading the uid of postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading the gid of postgres: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// command prepares a program to run in dir as the account of the server.
func command(ctx context.Context, dir, name string, args ...string) (*exec.Cmd, error) {
	cred, err := account()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	return cmd, nil
}

// run runs a program to its end.
func run(dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd, err := command(ctx, dir, name, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w\n%s", filepath.Base(name), err, strings.TrimSpace(string(out)))
	}
	return nil
}
