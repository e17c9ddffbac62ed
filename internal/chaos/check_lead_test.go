package chaos_test

import "fmt"

// claimsWithoutLead are claims of a process that was not the last to take the lead (G7). A claim and a take-over cannot overlap, because
// one session makes a leader's claims and holds its lock, so the log has them in their order.
func (h *history) claimsWithoutLead() (bad []violation) {
	var lead entry
	for _, e := range h.log {
		switch {
		case e.what == "lead":
			lead = e
		case e.what == "claim" && (e.process != lead.process || e.epoch != lead.epoch):
			bad = append(bad, violation{"G7 lead", fmt.Sprintf("%s claimed %v in epoch %d, and %s leads since epoch %d", e.process, e.row, e.epoch, lead.process, lead.epoch), []rowID{e.row}})
		}
	}
	return bad
}

// lateStamps are marks set by a process although another one has claimed the row (G7).
func (h *history) lateStamps() (bad []violation) {
	for id, r := range h.rows {
		var claim *entry
		for _, e := range r.log {
			switch {
			case e.what == "claim":
				claim = e
			case e.settled() && r.reason != "crashed" && claim != nil && e.process != claim.process &&
				// A claim that a crash took back is not in the log, and its outcome may be marked all the same.
				!h.happened(claim.at, e.at, "", "backend killed", "server crashed"):
				bad = append(bad, violation{"G7 fence", fmt.Sprintf("%s marked %v, which %s had claimed (log %d and %d)", e.process, id, claim.process, e.seq, claim.seq), []rowID{id}})
			}
		}
	}
	return bad
}
