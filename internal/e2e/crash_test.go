package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
	"pgrelay/internal/sqstest"
)

// slowPoller makes a row that needs a regular look late beyond doubt.
const slowPoller = "{interval: 30m, sweep_interval: 1h}"

// victim is a process that a trap or a fault may kill before the test knows of it.
type victim struct {
	mu   sync.Mutex
	p    *process
	dead bool
}

// kill is called from anywhere, once or more.
func (v *victim) kill() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dead = true; v.p != nil {
		_ = v.p.cmd.Process.Kill()
	}
}

// launched names the process; it dies at once if it should have been killed already.
func (v *victim) launched(p *process) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.p = p; v.dead {
		_ = p.cmd.Process.Kill()
	}
}

// forget makes room for the next process.
func (v *victim) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.p, v.dead = nil, false
}

// crashSteps arm a kill at each step of claim, publish and stamp. Each lets the first batch pass.
var crashSteps = []struct {
	name   string
	arm    func(w *world, px *proxy, kill func())
	repeat bool // a message was stored and its stamp was not
}{
	{name: "before the claim", arm: atStatement(claimStatement, beforeStatement)},
	{name: "when the claim is committed and its answer not read", arm: atStatement(claimStatement, afterStatement)},
	{name: "when a call is on its way", arm: atCall(sqstest.Fault{CutBefore: true})},
	{name: "when a call is stored and not answered", arm: atCall(sqstest.Fault{Delay: time.Hour}), repeat: true},
	{name: "before the stamp", arm: atStatement(stampStatement, beforeStatement), repeat: true},
	{name: "during the stamp", arm: atStatement(stampStatement, duringStatement)},
	{name: "when the stamp is committed and its answer not read", arm: atStatement(stampStatement, afterStatement)},
}

func atStatement(tr trap, when moment) func(*world, *proxy, func()) {
	return func(_ *world, px *proxy, kill func()) {
		tr.when, tr.skip, tr.spring = when, 1, kill
		px.set(tr)
	}
}

func atCall(fault sqstest.Fault) func(*world, *proxy, func()) {
	return func(w *world, _ *proxy, kill func()) {
		w.sqs.SetFault(func(r sqstest.Request) sqstest.Fault {
			if r.Action != "SendMessageBatch" || w.sqs.Count(r.Queue) == 0 {
				return sqstest.Fault{}
			}
			if fault.CutBefore {
				kill()
				return fault
			}
			before := w.sqs.Count(r.Queue)
			go func() {
				if w.sqs.Wait(w.t.Context(), r.Queue, before+1) == nil {
					kill()
				}
			}()
			return fault
		})
	}
}

func TestKilledAtAnyStepARelayLosesNothingAndRepeatsOnlyWhatWasInFlight(t *testing.T) {
	t.Parallel()
	for _, step := range crashSteps {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sections{"poller": slowPoller, "relay": "{batch_size: 10}"})
			px := newProxy(t, w.db.URL)
			w.insert("q", 35)
			var v victim
			step.arm(w, px, v.kill)
			p := w.launch([]string{px.env()}, "run")
			v.launched(p)
			p.wait()
			px.cut()
			w.sqs.SetFault(nil)
			inFlight := w.left()

			next := w.start()
			w.settled(0)
			next.stop()
			repeats := w.repeats(standardQueue)
			require.Subset(t, inFlight, repeats)
			if step.repeat {
				require.NotEmpty(t, repeats)
			}
		})
	}
}

// left waits until the sessions of a dead process are gone, and lists the rows that it had in flight.
func (w *world) left() []string {
	w.t.Helper()
	w.eventually("0", `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pgrelay%'`)
	return w.strings(`SELECT unnest(ids) FROM pgrelay.claims`)
}

// repeats requires that each row of outbox_events has arrived and nothing else, and lists the rows that did more than once.
func (w *world) repeats(queue string) (ids []string) {
	w.t.Helper()
	arrivals := map[string]int{}
	for _, event := range eventIDs(w.sqs.Messages(queue)) {
		arrivals[event]++
	}
	var lost []string
	for _, row := range w.strings(`SELECT event_id || ' ' || id FROM pgrelay.outbox_events`) {
		event, id, _ := strings.Cut(row, " ")
		switch arrivals[event] {
		case 0:
			lost = append(lost, id)
		case 1:
		default:
			ids = append(ids, id)
		}
		delete(arrivals, event)
	}
	require.Empty(w.t, lost, "rows are lost")
	require.Empty(w.t, arrivals, "messages without a row")
	return ids
}

func TestKilledAtRandomMomentsARelayRepeatsOnlyWhatWasInFlight(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, sections{"poller": slowPoller})
	var inFlight []string
	for range 4 {
		// Some wait already and some come while it runs.
		w.insert("q", 50)
		p := w.launch(nil, "run")
		w.arrive(standardQueue, w.sqs.Count(standardQueue)+1+rnd.IntN(25))
		w.insert("q", 50)
		w.arrive(standardQueue, w.sqs.Count(standardQueue)+1+rnd.IntN(25))
		p.kill()
		inFlight = append(inFlight, w.left()...)
	}
	next := w.start()
	w.settled(0)
	next.stop()
	require.Subset(t, inFlight, w.repeats(standardQueue))
}

func TestRowThatCrashesTheProcessDiesAloneAndTakesNobodyWithIt(t *testing.T) {
	t.Parallel()
	const maxAttempts, poison = 3, 17
	w := newWorld(t, sections{"poller": slowPoller, "relay": fmt.Sprintf("{retry: {max_attempts: %d, initial: 10ms}}", maxAttempts)})
	ids := w.insert("q", 40)
	var v victim
	w.sqs.SetFault(func(r sqstest.Request) sqstest.Fault {
		if slices.ContainsFunc(r.Entries, func(e sqstest.Entry) bool { return e.Body == strconv.Itoa(poison) }) {
			v.kill()
			return sqstest.Fault{CutBefore: true}
		}
		return sqstest.Fault{}
	})
	crashes := 0
	var last *process
	for last == nil {
		p := w.launch(nil, "run")
		v.launched(p)
		pgtest.Eventually(t, patience, func() error {
			if !p.running() {
				return nil
			}
			if pending := w.string(`SELECT count(*)::text FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL`); pending != "0" {
				return fmt.Errorf("%s rows are pending", pending)
			}
			last = p
			return nil
		}, "the process dies or is done")
		require.Equal(t, "0", w.string(`SELECT coalesce(max(attempts), 0)::text FROM pgrelay.failures WHERE row_id <> $1`, ids[poison-1]),
			"a bystander lost an attempt")
		if last == nil {
			crashes++
			require.LessOrEqual(t, crashes, 2+maxAttempts, "the row goes on crashing the process")
			v.forget()
		}
	}
	// Twice with others in flight, then alone as often as any row may be tried.
	require.Equal(t, 2+maxAttempts, crashes)
	last.stop()
	require.Equal(t, []string{ids[poison-1] + " crashed"}, w.strings(`SELECT row_id || ' ' || reason FROM pgrelay.dead_letters`))
	others := slices.Delete(slices.Clone(ids), poison-1, poison)
	require.Len(t, w.strings(`SELECT id::text FROM pgrelay.outbox_events WHERE published_at IS NOT NULL`), len(others))
}
