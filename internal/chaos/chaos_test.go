package chaos_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNothingIsLostRepeatedWithoutReasonOrDisorderedInChaos is the suite. Without CHAOS_MINUTES it runs half a minute of one seed.
func TestNothingIsLostRepeatedWithoutReasonOrDisorderedInChaos(t *testing.T) {
	t.Parallel()
	seeds := strings.Split(cmp.Or(os.Getenv("CHAOS_SEED"), "1"), ",")
	each := 30 * time.Second
	if minutes := os.Getenv("CHAOS_MINUTES"); minutes != "" {
		n, err := strconv.ParseFloat(minutes, 64)
		require.NoError(t, err, "CHAOS_MINUTES")
		each = time.Duration(n * float64(time.Minute) / float64(len(seeds)))
	}
	var all *figures
	for _, s := range seeds {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "CHAOS_SEED")
		t.Run("seed "+s, func(t *testing.T) {
			f := unleashed(t, newPlan(seed, each))
			if all == nil {
				all = f
				return
			}
			all.add(f)
		})
	}
	if all != nil {
		t.Logf("figures\n\n%s", all)
	}
}

// memoryMost is many times what a relay needs, whose messages in flight may take 8 MiB here. The race detector multiplies.
var memoryMost = map[bool]int64{false: 128 << 20, true: 1 << 30}[raceDetector]

// unleashed runs a plan and checks what came of it.
func unleashed(t *testing.T, p plan) *figures {
	w := newWorld(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	var hands sync.WaitGroup
	w.write(writing, &hands)
	w.began = time.Now()
	for _, name := range processes {
		w.instances[name].start()
	}
	defer w.kill()
	sampling, stopSampling := context.WithCancel(ctx)
	var sampler sync.WaitGroup
	sampler.Go(func() { w.sample(sampling) })
	defer sampler.Wait()
	defer stopSampling()

	w.unleash(ctx)
	pause(ctx, time.Until(w.began.Add(p.lasts)))
	lasted := time.Since(w.began)
	stopWriting()
	hands.Wait()
	ended := time.Now()
	unwell := []error{w.heal(), w.settle(), w.confirm()}
	drained := time.Since(ended)
	for _, name := range processes {
		unwell = append(unwell, w.instances[name].current().stop())
	}
	stopSampling()
	sampler.Wait()
	h, err := w.read(ctx)
	require.NoError(t, err)
	f := h.measure(w, lasted, drained)
	f.violations = w.judge(h, unwell)
	return f
}

// write starts everybody who writes.
func (w *world) write(ctx context.Context, all *sync.WaitGroup) {
	for n := range writers {
		wr := w.newWriter(n)
		all.Go(func() { wr.keepAt(ctx, writerRest, wr.transaction) })
	}
	editor, busy, republisher := w.newWriter(100), w.newWriter(101), w.newWriter(102)
	host, clerk, person := w.newWriter(105), w.newWriter(106), w.newWriter(107)
	if !w.plan.slow { // only looks find what they leave
		opener, worker := w.newWriter(103), w.newWriter(104)
		all.Go(func() { opener.keepAt(ctx, 300*ms, opener.ready) })
		all.Go(func() { worker.keepAt(ctx, 700*ms, worker.halt) })
	}
	all.Go(func() { editor.keepAt(ctx, 250*ms, editor.edit) })
	all.Go(func() { host.keepAt(ctx, 300*ms, host.invite) })
	all.Go(func() { clerk.keepAt(ctx, 300*ms, clerk.order) })
	all.Go(func() { person.keepAt(ctx, 2*time.Second, person.decide) })
	all.Go(func() { busy.keepAt(ctx, 100*ms, busy.beBusy) })
	all.Go(func() { republisher.keepAt(ctx, 8*time.Second, republisher.republish) })
}

// kill leaves no process behind when the run is given up.
func (w *world) kill() {
	for _, i := range w.instances {
		r := i.current()
		select {
		case <-r.exited:
		default:
			r.kill()
		}
	}
}

// judge fails the test for everything that went wrong, says how to see it again, and counts the violations.
func (w *world) judge(h *history, unwell []error) int {
	w.t.Helper()
	for _, err := range unwell {
		if err != nil {
			w.t.Errorf("when all faults had ended: %v", err)
		}
	}
	for _, a := range h.faults {
		if a.err != nil {
			w.t.Logf("%s: %s did not come about: %v", a.kind, a.target, a.err)
		}
	}
	if missed := w.plan.missed(h.faults); len(missed) > 0 {
		w.t.Errorf("planned, and did not come about: %q", missed)
	}
	bad := h.check()
	byCheck := map[string]int{}
	for _, v := range bad {
		if byCheck[v.check]++; byCheck[v.check] <= 3 {
			w.t.Errorf("%s: %s\n%s", v.check, v.what, h.around(v.rows...))
		}
	}
	for check, n := range byCheck {
		w.t.Errorf("%s: %d violations in all", check, n)
	}
	for _, i := range w.instances {
		for _, r := range i.all() {
			w.inspect(r)
		}
	}
	if w.samples.memory > memoryMost {
		w.t.Errorf("G10 memory: a process took %s", size(w.samples.memory))
	}
	if 10*len(w.samples.moves) < w.samples.taken {
		w.t.Errorf("G5 slot: in %d looks its confirmed position was seen to be in %d places only", w.samples.taken, len(w.samples.moves))
	}
	if w.t.Failed() {
		w.t.Errorf("the processes' logs are in %s; run it again: make chaos CHAOS_MINUTES=%.1f CHAOS_SEED=%d", w.keepLogs(), w.plan.lasts.Minutes(), w.plan.seed)
	}
	return len(bad)
}

// inspect looks for what no process may do: panic, race, or end without being told.
func (w *world) inspect(r *run) {
	w.t.Helper()
	for _, sign := range []string{"DATA RACE", "panic:", "goroutine "} {
		if strings.Contains(r.stderr.String(), sign) {
			w.t.Errorf("%s wrote %q:\n%s", r.name, sign, r.tail())
		}
	}
	if !r.told {
		w.t.Errorf("%s ended by itself with exit code %d:\n%s", r.name, r.cmd.ProcessState.ExitCode(), r.tail())
	}
}

// keepLogs writes the processes' logs to a directory that stays.
func (w *world) keepLogs() string {
	dir, err := os.MkdirTemp("", "pgrelay-chaos-")
	for _, i := range w.instances {
		for _, r := range i.all() {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, r.name+".log"), []byte(r.stderr.String()), 0o600))
		}
	}
	return fmt.Sprint(dir, " ", orNil(err))
}
