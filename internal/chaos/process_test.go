package chaos_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"pgrelay/internal/proctest"
)

// instance is one of the two that run side by side: a process at a time, behind networks of its own.
type instance struct {
	w     *world
	name  string
	links map[string]*proxy // by what is behind them: database, queue, mail

	mu   sync.Mutex
	runs []*run
}

// run is one process of an instance, from its start to its end.
type run struct {
	name    string // of the instance, with a number
	cmd     *exec.Cmd
	stderr  proctest.Buffer
	exited  chan struct{}
	started time.Time
	ended   time.Time // read after exited
	killed  bool      // kill -9
	told    bool      // to end
}

// start runs `pgrelay run`. The kernel kills the process with its parent.
func (i *instance) start() *run {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := &run{name: fmt.Sprint(i.name, len(i.runs)+1), exited: make(chan struct{}), started: time.Now()}
	// No context ends it: stop and kill do, and the death of this process.
	r.cmd = i.w.command(context.Background(), r.name, i.w.through(i.links["database"], r.name), i.links["queue"].addr(), i.links["mail"].addr(), "run")
	r.cmd.Stderr = &r.stderr
	err := proctest.Start(r.cmd, func(error) { // how it ended its state says
		r.ended = time.Now()
		close(r.exited)
	})
	if err != nil {
		i.w.t.Errorf("starting %s: %v", r.name, err)
		close(r.exited)
	}
	i.runs = append(i.runs, r)
	return r
}

// hand runs a command as a person does. It may fail, as the server may be down: the log says what was done.
func (w *world) hand(ctx context.Context, args ...string) {
	_ = w.command(ctx, "hand", w.db.URL, w.addrs["queue"], w.addrs["mail"], args...).Run()
}

// command is pgrelay's command line as a process of its own.
func (w *world) command(ctx context.Context, name, database, queue, mail string, args ...string) *exec.Cmd {
	_, port, _ := strings.Cut(mail, ":")
	cmd := exec.CommandContext(ctx, os.Args[0], append(args, "--config", w.file)...)
	cmd.Env = []string{
		asProgram + "=1", "DATABASE_URL=" + database, "SQS_URL=http://" + queue, "MAIL_PORT=" + port, "HOME=" + filepath.Dir(w.file), "PATH=" + os.Getenv("PATH"),
		"AWS_ACCESS_KEY_ID=" + name, "AWS_SECRET_ACCESS_KEY=secret", "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"GORACE=halt_on_error=0 exitcode=66 atexit_sleep_ms=0", // no end takes a second for the race detector's sake
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// through is the database's address by way of a proxy, with a setting by which triggers know who is at work.
func (w *world) through(p *proxy, name string) string {
	u, err := url.Parse(w.db.URL)
	if err != nil {
		panic(err) // it is pgtest's
	}
	u.Host = p.addr()
	q := u.Query()
	q.Set("chaos.process", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// current is the instance's latest run.
func (i *instance) current() *run {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.runs[len(i.runs)-1]
}

func (i *instance) all() []*run {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.runs
}

func (r *run) signal(s syscall.Signal) { _ = r.cmd.Process.Signal(s) }

// kill is kill -9.
func (r *run) kill() {
	r.killed, r.told = true, true
	r.signal(syscall.SIGKILL)
	<-r.exited
}

// stop is SIGTERM. It returns an error unless the process ends with 0.
func (r *run) stop() error {
	r.told = true
	r.signal(syscall.SIGTERM)
	select {
	case <-r.exited:
	case <-time.After(patience):
		r.kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", r.name, patience)
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 && r.stderr.String() != "" { // else it had not yet begun to listen
		return fmt.Errorf("%s ended with exit code %d after SIGTERM\n%s", r.name, code, r.tail())
	}
	return nil
}

// unfinished says whether the process left rows in flight to the next leader.
func (r *run) unfinished() bool {
	return r.killed || strings.Contains(r.stderr.String(), "drain is unfinished")
}

// memory is the process's resident set in bytes, 0 if it has ended.
func (r *run) memory() int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10
}

// tail is the end of what it wrote.
func (r *run) tail() string {
	text := r.stderr.String()
	return text[max(0, len(text)-4096):]
}
