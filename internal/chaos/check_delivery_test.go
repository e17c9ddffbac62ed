package chaos_test

import "fmt"

// violation is a guarantee that was broken.
type violation struct {
	check string
	what  string
	rows  []rowID // around which to look
}

// check runs all checks.
func (h *history) check() []violation {
	var all []violation
	for _, c := range []func(*history) []violation{
		(*history).strangers, (*history).losses, (*history).deaths, (*history).early,
		(*history).unexplainedRepeats, (*history).disorder, (*history).crowdedBatches, (*history).claimsWithoutLead, (*history).lateStamps,
		(*history).unserved, (*history).doubts, (*history).passed, (*history).unrecorded, (*history).sentThoughRecorded,
	} {
		all = append(all, c(h)...)
	}
	return all
}

// strangers are messages of rows that were never committed (G1). The outboxes keep all their rows.
func (h *history) strangers() (bad []violation) {
	for _, s := range h.sends {
		if h.byEvent[s.event] == nil {
			bad = append(bad, violation{"G1 committed", fmt.Sprintf("event %s was sent by %s at %s and is not in the table", s.event, s.process, s.at.Format(clock)), nil})
		}
	}
	return bad
}

const clock = "15:04:05.000"

// once says that the row's route sends at most once: setting it back does not send it again.
func (r *row) once() bool { return len(r.recipients) > 0 }

// losses are rows that are neither dead nor delivered as their owner wrote them last (G1).
func (h *history) losses() (bad []violation) {
	for id, r := range h.rows {
		armed := r.armed()
		switch {
		case r.dead, r.uncertain:
		case !r.published:
			bad = append(bad, violation{"G1 settled", fmt.Sprintf("%v is still pending", id), []rowID{id}})
		case r.once():
			// To whom it was delivered, another check asks.
		case armed != nil && r.recorded(armed):
			// It is stamped and not sent again: another check.
		case armed != nil && !r.delivered(armed):
			bad = append(bad, violation{"G1 delivered", fmt.Sprintf("%v is marked as published, and version %d was never delivered", id, armed.version), []rowID{id}})
		}
	}
	return bad
}

// armed is the last time that the row's owner, or a person, left it pending.
func (r *row) armed() (last *entry) {
	for _, e := range r.log {
		if e.byOwner() && e.pending {
			last = e
		}
	}
	return last
}

// byOwner: whoever inserts a row owns it, a job of the scheduler too.
func (e *entry) byOwner() bool { return e.what == "insert" || e.what == "update" && e.process == "" }

// settled says whether it is the relay's mark.
func (e *entry) settled() bool { return e.process != "" && e.what == "update" && !e.pending }

func (r *row) delivered(armed *entry) bool {
	for _, s := range r.sends {
		if s.version == armed.version && s.at.After(armed.at) {
			return true
		}
	}
	return false
}

// deaths that have no cause (G4, G9), and rows that should have died and were sent.
func (h *history) deaths() (bad []violation) {
	for id, r := range h.rows {
		routed := r.topic != "x.nobody"
		switch {
		case r.dead && r.reason == "crashed":
			// It was alone in flight each time that a process died: the plan may have it so.
		case r.dead && routed && !r.refused:
			bad = append(bad, violation{"G4 death", fmt.Sprintf("%v is dead of %q, and was never refused for good", id, r.reason), []rowID{id}})
		case r.dead && r.reason == "" && !r.discarded():
			bad = append(bad, violation{"G1 reason", fmt.Sprintf("%v is dead without a reason", id), []rowID{id}})
		case !routed && len(r.sends) > 0:
			bad = append(bad, violation{"G9 route", fmt.Sprintf("%v has no route and was sent", id), []rowID{id}})
		}
	}
	return bad
}

// early are messages that were sent before their time, or before their row was ready.
func (h *history) early() (bad []violation) {
	for id, r := range h.rows {
		for _, s := range r.sends {
			if r.due != nil && s.at.Before(*r.due) {
				bad = append(bad, violation{"due", fmt.Sprintf("%v was sent before %s", id, r.due.Format(clock)), []rowID{id}})
			}
		}
	}
	return bad
}
