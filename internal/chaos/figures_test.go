package chaos_test

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// figures are what a run shows; those of several add up.
type figures struct {
	seeds                         []string
	lasted                        time.Duration
	rows, delivered, dead         int
	uncertain, mails              int
	held, recorded                int
	sends, dropped, claims, leads int
	processes                     int
	reasons                       map[string]int
	faults                        map[string]*faultFigures
	violations                    int
	memory, lag                   int64
	confirmed                     int
	drained                       time.Duration // the longest
}

// faultFigures are those of one kind of fault.
type faultFigures struct {
	times          int
	alone, crowded time.Duration // the longest recoveries: with no other fault on, and with others
	measured       int           // of those alone
}

// measure draws the figures from a run.
func (h *history) measure(w *world, lasted, drained time.Duration) *figures {
	f := &figures{
		seeds: []string{fmt.Sprint(w.plan.seed)}, lasted: lasted, rows: len(h.rows), sends: len(h.sends), processes: len(h.lives), drained: drained,
		reasons: h.reasons(), faults: map[string]*faultFigures{}, memory: w.samples.memory, lag: w.samples.lag, confirmed: len(w.samples.moves),
	}
	for _, r := range h.rows {
		switch {
		case r.dead:
			f.dead++
		case r.published:
			f.delivered++
		case r.uncertain:
			f.uncertain++
		}
		f.held += len(r.held())
		for _, e := range r.log {
			if e.byOwner() && e.pending && r.recorded(e) {
				f.recorded++
			}
		}
	}
	for _, s := range h.sends {
		if s.dropped {
			f.dropped++
		}
		if s.queue == mailServer && s.stored {
			f.mails++
		}
	}
	for _, e := range h.log {
		switch e.what {
		case "lead":
			f.leads++
		case "claim":
			f.claims++
		}
	}
	recovered := map[bool]func(time.Time) time.Time{false: h.recoveries(false), true: h.recoveries(true)}
	for _, a := range h.faults {
		if a.err != nil {
			continue
		}
		of := f.faults[a.kind]
		if of == nil {
			of = &faultFigures{}
			f.faults[a.kind] = of
		}
		of.times++
		at := recovered[a.hitsMail()](a.ended)
		if at.IsZero() {
			continue // nobody wrote any more
		}
		if took := at.Sub(a.ended); h.company(a, at) {
			of.crowded = max(of.crowded, took)
		} else {
			of.alone = max(of.alone, took)
			of.measured++
		}
	}
	return f
}

// recoveries tells for a moment when the first row arrived that was written after it: of mails, or of messages to the queues.
func (h *history) recoveries(mails bool) func(time.Time) time.Time {
	type delivery struct{ written, arrived time.Time }
	var all []delivery
	for _, r := range h.rows {
		if r.mails() == mails && r.due == nil && len(r.sends) > 0 && len(r.log) > 0 {
			all = append(all, delivery{r.log[0].at, r.sends[0].at})
		}
	}
	slices.SortFunc(all, func(a, b delivery) int { return a.written.Compare(b.written) })
	for i := len(all) - 2; i >= 0; i-- {
		if all[i+1].arrived.Before(all[i].arrived) {
			all[i].arrived = all[i+1].arrived // by this or a later one
		}
	}
	return func(moment time.Time) time.Time {
		i, _ := slices.BinarySearchFunc(all, moment, func(d delivery, t time.Time) int { return cmp.Compare(d.written.UnixMicro(), t.UnixMicro()+1) })
		if i == len(all) {
			return time.Time{}
		}
		return all[i].arrived
	}
}

// company says whether another fault was there, or had been shortly before, until deliveries came again.
func (h *history) company(a applied, recovered time.Time) bool {
	for _, o := range h.faults {
		if (o.kind != a.kind || o.target != a.target || o.at != a.at) && o.began.Before(recovered) && o.ended.After(a.began.Add(-3*time.Second)) {
			return true
		}
	}
	return false
}

// add joins the figures of another run.
func (f *figures) add(o *figures) {
	f.seeds = append(f.seeds, o.seeds...)
	f.lasted += o.lasted
	for _, sum := range []struct{ to, from *int }{
		{&f.rows, &o.rows}, {&f.delivered, &o.delivered}, {&f.dead, &o.dead}, {&f.uncertain, &o.uncertain}, {&f.sends, &o.sends}, {&f.dropped, &o.dropped},
		{&f.mails, &o.mails}, {&f.held, &o.held}, {&f.recorded, &o.recorded},
		{&f.claims, &o.claims}, {&f.leads, &o.leads}, {&f.processes, &o.processes}, {&f.confirmed, &o.confirmed}, {&f.violations, &o.violations},
	} {
		*sum.to += *sum.from
	}
	f.memory, f.lag, f.drained = max(f.memory, o.memory), max(f.lag, o.lag), max(f.drained, o.drained)
	for reason, n := range o.reasons {
		f.reasons[reason] += n
	}
	for kind, of := range o.faults {
		mine := f.faults[kind]
		if mine == nil {
			f.faults[kind] = of
			continue
		}
		mine.times, mine.measured = mine.times+of.times, mine.measured+of.measured
		mine.alone, mine.crowded = max(mine.alone, of.alone), max(mine.crowded, of.crowded)
	}
}

// String is the figures as docs/reliability.md shows them.
func (f *figures) String() string {
	var b strings.Builder
	times := 0
	for _, of := range f.faults {
		times += of.times
	}
	fmt.Fprintf(&b, "Seeds %s, %.0f minutes in all, PostgreSQL on %d cores that it shares with everything else, race detector %s.\n\n",
		strings.Join(f.seeds, ", "), f.lasted.Minutes(), runtime.NumCPU(), map[bool]string{true: "on", false: "off"}[raceDetector])
	fmt.Fprintf(&b, "| what | how many |\n|---|---:|\n")
	for _, l := range []struct {
		what string
		n    any
	}{
		{"events committed", f.rows}, {"delivered", f.delivered}, {"dead with a reason", f.dead}, {"sent at most once, outcome unknown", f.uncertain}, {"lost, repeated without a reason, out of order or otherwise against a guarantee", f.violations},
		{"times that a dead row held its key", f.held}, {"set back by hand, and stamped without being sent as the ledger had them", f.recorded},
		{"messages sent", f.sends}, {"of them dropped by the FIFO queue as repeats", f.dropped}, {"mails accepted", f.mails}, {"rows claimed", f.claims}, {"leads taken", f.leads},
		{"processes", f.processes}, {"faults", times}, {"positions that the slot confirmed, of those seen each second", f.confirmed},
		{"the slot's longest lag (faults included)", size(f.lag)}, {"most memory of a process", size(f.memory)},
		{"longest time from the last fault until nothing was pending", f.drained.Round(100 * ms)},
	} {
		fmt.Fprintf(&b, "| %s | %v |\n", l.what, l.n)
	}
	fmt.Fprintf(&b, "\n| reason of a repeat | how many |\n|---|---:|\n")
	for _, reason := range []string{rearmed, changed, unknown, died, leadLost, stampLost} {
		fmt.Fprintf(&b, "| %s | %d |\n", reason, f.reasons[reason])
	}
	fmt.Fprintf(&b, "\n| fault | times | longest recovery, alone | with other faults on |\n|---|---:|---:|---:|\n")
	for _, kind := range slices.Sorted(maps.Keys(f.faults)) {
		of := f.faults[kind]
		alone := "–"
		if of.measured > 0 {
			alone = of.alone.Round(10 * ms).String()
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", kind, of.times, alone, of.crowded.Round(10*ms))
	}
	return b.String()
}

func size(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
