package chaos_test

import (
	"fmt"
	"strings"
	"time"
)

// The reasons of G2 for a message to be sent again.
const (
	rearmed   = "republished, or set back by hand"
	changed   = "row changed in flight"
	died      = "relay died between send and stamp"
	leadLost  = "lead lost between send and stamp"
	stampLost = "server crash took the stamp back"
	unknown   = "outcome unknown: omitted, reply lost or timed out"
)

// unexplainedRepeats are deliveries beyond the first of a row that have none of G2's reasons.
func (h *history) unexplainedRepeats() (bad []violation) {
	for id, r := range h.rows {
		if r.once() {
			bad = append(bad, r.twice()...)
			continue
		}
		for i, b := range r.sends[min(1, len(r.sends)):] {
			if a := r.sends[i]; h.reason(r, a, b) == "" {
				bad = append(bad, violation{"G2 repeat", fmt.Sprintf("%v was sent again at %s (the time before: %s) for no reason",
					id, b.at.Format(clock), a.at.Format(clock)), []rowID{id}})
			}
		}
	}
	return bad
}

// twice says who got a message again that goes at most once.
func (r *row) twice() (bad []violation) {
	got := map[string]int{}
	for _, s := range r.sends {
		if got[s.recipient]++; got[s.recipient] == 2 {
			bad = append(bad, violation{"G11 once", fmt.Sprintf("%v was accepted again %s", r.rowID, s.recipient), []rowID{r.rowID}})
		}
	}
	return bad
}

// reasons counts the repeats.
func (h *history) reasons() map[string]int {
	count := map[string]int{}
	for _, r := range h.rows {
		if r.once() {
			continue
		}
		for i, b := range r.sends[min(1, len(r.sends)):] {
			count[h.reason(r, r.sends[i], b)]++
		}
	}
	return count
}

// reason is why b was sent although a had been stored; empty if there is none. The log is the judge of what was stamped: a claim
// that comes after a surviving stamp, and no owner's act in between, is never right, whatever else went wrong.
func (h *history) reason(r *row, a, b *send) string {
	stamp, act := r.between(a, b)
	switch {
	case act != nil && !act.inFlight:
		return rearmed
	case act != nil:
		return changed
	case stamp:
		return ""
	case h.endedBefore(a.process, b.at):
		return died
	case h.leadTaken(a, b):
		return leadLost
	case h.happened(a.at.Add(-time.Second), b.at, "", "backend killed", "server crashed"):
		return stampLost
	case !a.told, h.disturbed(a.process, a.at, a.answered.Add(callTimeout)), h.disturbed(b.process, b.at.Add(-callTimeout), b.at):
		return unknown
	}
	return ""
}

type act struct{ inFlight bool }

// between finds what happened to the row after a was claimed and before b was: a stamp that survived, an act of the owner's.
func (r *row) between(a, b *send) (stamp bool, found *act) {
	for _, e := range r.log {
		switch {
		case a.claim != nil && e.seq <= a.claim.seq, a.claim == nil && e.at.Before(a.at.Add(-time.Minute)):
		case b.claim != nil && e.seq >= b.claim.seq, e.at.After(b.at):
		case e.what == "insert":
		case e.byOwner():
			found = &act{inFlight: !stamp}
		case e.settled():
			stamp = true
		}
	}
	return stamp, found
}

// endedBefore says whether a process had ended by then and left rows in flight.
func (h *history) endedBefore(process string, at time.Time) bool {
	l := h.lives[process]
	return !l.ended.IsZero() && l.ended.Before(at) && l.unfinished
}

// leadTaken says whether another process took the lead after a was claimed.
func (h *history) leadTaken(a, b *send) bool {
	from := a.at.Add(-time.Minute)
	if a.claim != nil {
		from = a.claim.at
	}
	for i := range h.log {
		if e := &h.log[i]; e.what == "lead" && e.process != a.process && e.at.After(from) && e.at.Before(b.at) {
			return true
		}
	}
	return false
}

// happened says whether a fault of some kinds, against a target that begins so, was there within a time.
func (h *history) happened(from, to time.Time, target string, kinds ...string) bool {
	for _, f := range h.faults {
		if f.err != nil || f.ended.Before(from) || f.began.After(to) || !strings.HasPrefix(f.target, target) {
			continue
		}
		for _, k := range kinds {
			if f.kind == k {
				return true
			}
		}
	}
	return false
}

// disturbed says whether answers to a process may have been lost or late within a time: its network to the queues was not
// whole, or it was frozen.
func (h *history) disturbed(process string, from, to time.Time) bool {
	instance := process[:min(1, len(process))]
	return h.happened(from, to, instance+"-queue", "queue link cut", "queue link half-open", "queue link slow") ||
		h.happened(from, to, instance, "process frozen")
}
