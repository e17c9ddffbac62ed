package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/proctest"
)

// process is one run of pgrelay.
type process struct {
	w      *world
	name   string
	cmd    *exec.Cmd
	stdout proctest.Buffer
	stderr proctest.Buffer
	exited chan struct{}
}

// launch starts pgrelay with a command line and, on top of what it needs, variables
// of its environment. Whatever is left of it when the test ends is killed.
func (w *world) launch(env []string, args ...string) *process {
	w.t.Helper()
	p := &process{w: w, name: "pgrelay " + strings.Join(args, " "), exited: make(chan struct{})}
	// No context ends it: finish does, and the death of this process.
	p.cmd = exec.CommandContext(context.Background(), os.Args[0], append(args, "--config", w.file)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.Env = append([]string{
		asProgram + "=1", "DATABASE_URL=" + w.db.URL, "HOME=" + filepath.Dir(w.file), "PATH=" + os.Getenv("PATH"),
		"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"GORACE=atexit_sleep_ms=0", // the race detector would make each process end a second later
	}, env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(w.t, proctest.Start(p.cmd, func(error) { close(p.exited) })) // how it ended its state says
	w.t.Cleanup(p.finish)
	return p
}

// finish ends what the test has left running, as an operator would, and shows the log
// of a test that failed.
func (p *process) finish() {
	t := p.w.t
	defer func() {
		if t.Failed() {
			t.Logf("%s (pid %d):\n%s%s", p.name, p.cmd.Process.Pid, p.stdout.String(), p.stderr.String())
		}
	}()
	if p.running() {
		if code := p.terminate(); code != 0 {
			t.Errorf("%s: exit code %d after SIGTERM", p.name, code)
		}
	}
	for _, sign := range []string{"DATA RACE", "panic:", "goroutine "} {
		if strings.Contains(p.stderr.String(), sign) {
			t.Errorf("%s: its log has %q", p.name, sign)
		}
	}
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// wait gives the exit code, -1 of a process that was killed.
func (p *process) wait() int {
	p.w.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.exited
		p.w.t.Errorf("%s did not end within %s", p.name, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// terminate asks the process to end and gives its exit code.
func (p *process) terminate() int {
	p.w.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.wait()
}

// stop is a drain that leaves nothing behind: no claim and no session.
func (p *process) stop() {
	p.w.t.Helper()
	require.Zero(p.w.t, p.terminate())
	p.w.eventually("0 claims, 0 sessions", `SELECT (SELECT count(*) FROM pgrelay.claims) || ' claims, ' ||
		(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pgrelay%') || ' sessions'`)
}

// kill is kill -9.
func (p *process) kill() {
	p.w.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

func (p *process) signal(s syscall.Signal) {
	p.w.t.Helper()
	if err := p.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.w.t, err)
	}
}

// start runs `pgrelay run` until it leads and its destinations are ready.
func (w *world) start(env ...string) *process {
	w.t.Helper()
	p := w.launch(env, "run")
	p.says("leading")
	pgtest.Eventually(w.t, patience, func() error {
		for name, value := range p.gauges("pgrelay_destination_paused") {
			if value != 0 {
				return fmt.Errorf("%s is paused", name)
			}
		}
		return nil
	}, "destinations are ready")
	return p
}

// stream is start, and waits until the stream is read: what commits from now on comes by it.
func (w *world) stream(env ...string) *process {
	w.t.Helper()
	p := w.start(env...)
	p.says("replication stream started")
	return p
}

// run executes a command that ends by itself.
func (w *world) run(args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	p := w.launch(nil, args...)
	code = p.wait()
	return code, p.stdout.String(), p.stderr.String()
}

// done executes a command that has to succeed and gives what it printed.
func (w *world) done(args ...string) string {
	w.t.Helper()
	code, stdout, stderr := w.run(args...)
	require.Zero(w.t, code, stderr)
	return stdout
}

// entry is one line of the log.
type entry map[string]any

// logged are the entries with a message so far.
func (p *process) logged(message string) []entry {
	p.w.t.Helper()
	var found []entry
	for lines := bufio.NewScanner(strings.NewReader(p.stderr.String())); lines.Scan(); {
		if !strings.Contains(lines.Text(), message) {
			continue // cheaper than to decode it
		}
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) == nil && e["message"] == message {
			found = append(found, e)
		}
	}
	return found
}

// says waits for a message in the log and returns its first entry.
func (p *process) says(message string) entry {
	p.w.t.Helper()
	pgtest.Eventually(p.w.t, patience, func() error {
		running := p.running()
		if len(p.logged(message)) > 0 {
			return nil
		}
		if !running {
			p.w.t.Fatalf("%s ended before it said %q", p.name, message)
		}
		return errors.New("not said")
	}, "%s says %q", p.name, message)
	return p.logged(message)[0]
}

// get asks the process over HTTP.
func (p *process) get(path string) (status int, body string) {
	p.w.t.Helper()
	url := fmt.Sprintf("http://%s%s", p.says("serving metrics and health")["addr"], path)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(p.w.t, err)
	request.Close = true // no idle connection is left behind
	response, err := http.DefaultClient.Do(request)
	require.NoError(p.w.t, err)
	defer response.Body.Close() //nolint:errcheck // only read from
	text, err := io.ReadAll(response.Body)
	require.NoError(p.w.t, err)
	return response.StatusCode, string(text)
}

// gauges are the values of a metric by its labels' values; of a histogram, its counts.
func (p *process) gauges(name string) map[string]float64 {
	p.w.t.Helper()
	status, text := p.get("/metrics")
	require.Equal(p.w.t, http.StatusOK, status)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(p.w.t, err)
	values := map[string]float64{}
	for _, m := range families[name].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		values[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return values
}
