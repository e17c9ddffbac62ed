package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

func TestRollingDeployUnderLoadRepeatsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": slowPoller})
	old := w.stream()
	l := w.produce()
	for range 5 {
		w.flows()
		next := w.standBy()
		require.Zero(t, old.terminate())
		next.takesOver()
		w.flows()
		next.says("replication stream started")
		old = next
	}
	l.stop()
	w.settled(0)
	old.stop()
	require.Empty(t, w.repeats(standardQueue))
}

// leader waits until exactly one of some instances leads and the others stand by, and gives it.
func (w *world) leader(of ...*process) *process {
	w.t.Helper()
	var leader *process
	pgtest.Eventually(w.t, patience, func() error {
		leader = nil
		leaders := 0
		for _, p := range of {
			if _, text := p.get("/readyz"); strings.TrimSpace(text) == "leading" {
				leader = p
				leaders++
			}
		}
		if leaders != 1 {
			return fmt.Errorf("%d lead", leaders)
		}
		return nil
	}, "one instance leads")
	return leader
}

func without(all []*process, p *process) []*process {
	return slices.DeleteFunc(slices.Clone(all), func(other *process) bool { return other == p })
}

// leads counts how often some instances have taken the lead.
func leads(of []*process) (n int) {
	for _, p := range of {
		n += len(p.logged("leading"))
	}
	return n
}

func TestOfThreeInstancesOneLeadsWhateverHappensToIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"poller": "{interval: 200ms, sweep_interval: 1s}"})
	all := []*process{w.start(), w.standBy(), w.standBy()}
	w.insert("q", 100)
	w.settled(0)
	for _, fault := range []struct {
		name string
		does func(leader *process)
	}{
		{"its session is terminated", func(*process) {
			before := leads(all)
			require.Equal(t, "true", w.string(`SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE datname = current_database() AND
				application_name = 'pgrelay leader' AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')`))
			pgtest.Eventually(t, patience, func() bool { return leads(all) > before }, "one leads again")
		}},
		{"it freezes and thaws", func(leader *process) {
			leader.signal(syscall.SIGSTOP)
			w.leader(without(all, leader)...)
			w.flows()
			leader.signal(syscall.SIGCONT)
		}},
		{"it is killed", func(leader *process) {
			leader.kill()
			all = without(all, leader)
		}},
		{"it is terminated", func(leader *process) {
			require.Zero(t, leader.terminate())
			all = without(all, leader)
		}},
	} {
		settled, before := w.strings(`SELECT id::text FROM pgrelay.outbox_events`), w.repeats(standardQueue)
		l := w.produce()
		w.flows()
		leader := w.leader(all...)
		began := time.Now()
		fault.does(leader)
		w.leader(all...)
		w.flows()
		w.took(fault.name+": rows flow", began)
		l.stop()
		w.settled(0)
		repeats := slices.DeleteFunc(w.repeats(standardQueue), func(id string) bool { return slices.Contains(before, id) })
		w.disjoint(settled, repeats)
	}
	all[0].stop()
}
