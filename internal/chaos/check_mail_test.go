package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// mails says that each of the row's recipients has a mail of their own.
func (r *row) mails() bool { return r.topic == "mail" }

func (r *row) served(recipient string) bool {
	return slices.ContainsFunc(r.sends, func(s *send) bool { return s.recipient == recipient })
}

// unserved are recipients of committed events who got no message, and of whom nothing else is known; and those of whom something else is
// known than what they got (G1). The claim of a send stands for as long as it may have been made.
func (h *history) unserved() (bad []violation) {
	for id, r := range h.rows {
		for _, to := range r.recipients {
			made, claimed := h.claims[sendKey{r.event, to}]
			what := ""
			switch has := r.served(to); {
			case made && !has:
				what = "is said to have got it, and has not"
			case has && !claimed:
				what = "has got it, and there is no claim of that"
			case r.published && !made:
				what = "is not said to have got it, and the row is marked"
			case has, !r.published && !r.dead && !r.uncertain, r.uncertain && claimed:
			case !r.dead || r.mails() && !r.discarded() && !strings.Contains(r.detail, to):
				what = fmt.Sprintf("has not got it (dead %t, claimed %t, detail %q)", r.dead, claimed, r.detail)
			}
			if what != "" {
				bad = append(bad, violation{"G1 recipient", fmt.Sprintf("%v: %s %s", id, to, what), []rowID{id}})
			}
		}
	}
	return bad
}

// doubts are sends of which nobody knows the outcome although nothing went wrong while they were on their way; or more mails' than can have
// been on their way when something did (G11).
func (h *history) doubts() (bad []violation) {
	crowd, most := 0, 0
	for key, made := range h.claims {
		r := h.byEvent[key.event]
		switch {
		case made:
		case r == nil:
			bad = append(bad, violation{"G11 doubt", fmt.Sprintf("event %s is claimed for %s and is not in the table", key.event, key.recipient), nil})
		case h.unanswered(r, key.recipient):
		case !h.brokenOff(r, key.recipient):
			bad = append(bad, violation{"G11 doubt", fmt.Sprintf("%v is uncertain for %s for no reason", r.rowID, key.recipient), []rowID{r.rowID}})
		case r.mails():
			crowd++
		}
	}
	for _, e := range h.log {
		if e.what == "lead" {
			most += mailConnections
		}
	}
	for _, f := range h.faults {
		switch f.kind {
		case "process frozen", "mail link cut", "mail link half-open":
			most += mailConnections
		}
	}
	if crowd > most {
		bad = append(bad, violation{"G11 crowd", fmt.Sprintf("%d mails are uncertain that were on their way when something broke, and %d could be", crowd, most), nil})
	}
	return bad
}

// onItsWay is the time from the last claim of a send, which has not ended, until nobody waited for its outcome any more.
func (r *row) onItsWay(recipient string) (claim entry, until time.Time) {
	for _, e := range r.log {
		switch {
		case e.what == "send claimed" && e.recipient == recipient:
			claim, until = *e, e.at.Add(24*time.Hour)
		case (e.what == "send unknown" && e.recipient == recipient || e.settled()) && e.at.Before(until):
			until = e.at
		}
	}
	return claim, until
}

// unanswered says whether the send itself got no answer.
func (h *history) unanswered(r *row, recipient string) bool {
	claim, until := r.onItsWay(recipient)
	return slices.ContainsFunc(h.sends, func(s *send) bool {
		return s.event == r.event && s.recipient == recipient && !s.told && s.at.After(claim.at) && s.at.Before(until)
	})
}

// brokenOff says whether whoever made the send died, was frozen or cut off, or lost the lead meanwhile.
func (h *history) brokenOff(r *row, recipient string) bool {
	claim, until := r.onItsWay(recipient)
	instance, link := claim.process[:min(1, len(claim.process))], "queue"
	if r.mails() {
		link = "mail"
	}
	replaced := func(e entry) bool {
		return e.what == "lead" && e.process != claim.process && e.at.After(claim.at) && e.at.Before(until)
	}
	return h.endedBefore(claim.process, until) || slices.ContainsFunc(h.log, replaced) ||
		h.happened(claim.at, until, instance+"-"+link, link+" link cut", link+" link half-open") ||
		h.happened(claim.at, until, instance, "process frozen")
}

const ann, bob = "1.b@example.com", "2.b@example.com" // the guests of row 1

func invitation(r *row) { r.topic, r.recipients = "mail", []string{ann, bob} }

func (s *tale) sendClaim(what, process, to string) {
	s.log(entry{what: what, process: process, event: eventOf(to), recipient: to})
	if s.h.claims[sendKey{eventOf(to), to}] = what == "send made"; what == "send released" {
		delete(s.h.claims, sendKey{eventOf(to), to})
	}
}

// mail sends one, from its claim to its end.
func (s *tale) mail(process, to, ends string, change ...func(*send)) {
	s.sendClaim("send claimed", process, to)
	s.send("", 1, 0, append(change, func(one *send) { one.queue, one.recipient = mailServer, to })...)
	if ends != "" {
		s.sendClaim(ends, process, to)
	}
}

// annAndBob claims the row, and has Ann get hers and Bob's end as it says.
func (s *tale) annAndBob(ends string, change ...func(*send)) {
	s.claim("A1", 1, 1)
	s.mail("A1", ann, "send made")
	s.mail("A1", bob, ends, change...)
	s.stamp("A1", 1, 1)
}

// both claims the row and has Ann and Bob get theirs.
func (s *tale) both(process string, epoch int64) {
	s.claim(process, 1, epoch)
	s.mail(process, ann, "send made")
	s.mail(process, bob, "send made")
	s.stamp(process, 1, 1)
}

func doubtful(r *row)    { r.published, r.uncertain = false, true }
func rejected(one *send) { one.stored, one.rejected = false, true }
func noted(r *row) {
	r.published, r.dead, r.reason, r.detail = false, true, "recipient_refused", "refused for good: "+bob
}
func forgotten(r *row)   { r.published, r.dead, r.reason = false, true, "recipient_refused" }
func deferred(one *send) { one.stored = false }
func faultOn(kind, at string, from, to time.Time) applied {
	return applied{fault: fault{kind: kind, target: at}, began: from, ended: to}
}

func TestChecksOfMailFindWhatIsWrongAndNothingElse(t *testing.T) {
	tales{
		"each has a mail": {tell: func(s *tale) { s.row(1, invitation); s.both("A1", 1) }},
		"one has none": {func(s *tale) {
			s.row(1, invitation)
			s.claim("A1", 1, 1)
			s.mail("A1", ann, "send made")
			s.stamp("A1", 1, 1)
		}, []string{"G1 recipient"}},
		"one has it and there is no claim":       {func(s *tale) { s.row(1, invitation, doubtful); s.annAndBob("send released", lost) }, []string{"G1 recipient"}},
		"one is uncertain and there is no claim": {func(s *tale) { s.row(1, invitation, doubtful); s.annAndBob("send released", gone) }, []string{"G1 recipient"}},
		"one has none and is said to":            {func(s *tale) { s.row(1, invitation); s.annAndBob("send made", gone) }, []string{"G1 recipient"}},
		"one has two": {func(s *tale) {
			s.row(1, invitation)
			s.claim("A1", 1, 1)
			s.mail("A1", ann, "send released", lost)
			s.both("A1", 1)
		}, []string{"G11 once"}},
		"one was refused for now and has it": {tell: func(s *tale) {
			s.row(1, invitation)
			s.claim("A1", 1, 1)
			s.mail("A1", ann, "send released", deferred)
			s.both("A1", 1)
		}},
		"one was refused for good and is named":     {tell: func(s *tale) { s.row(1, invitation, noted); s.annAndBob("send released", rejected) }},
		"one was refused for good and is not named": {func(s *tale) { s.row(1, invitation, forgotten); s.annAndBob("send released", rejected) }, []string{"G1 recipient"}},
		"one was refused for good and a person has discarded that": {tell: func(s *tale) {
			s.row(1, invitation, buried)
			s.annAndBob("send released", rejected)
			s.note("died", "A1", 1, 0, false, 0)
			s.letsGo(1)
		}},
		"one's answer was lost":                  {tell: func(s *tale) { s.row(1, invitation, doubtful); s.annAndBob("send unknown", gone) }},
		"one is uncertain for no reason":         {func(s *tale) { s.row(1, invitation, doubtful); s.annAndBob("send unknown") }, []string{"G11 doubt"}},
		"one is uncertain and the row is marked": {func(s *tale) { s.row(1, invitation); s.annAndBob("send unknown", lost) }, []string{"G1 recipient"}},
		"one is uncertain as the relay died": {tell: func(s *tale) {
			s.row(1, invitation, doubtful)
			s.claim("A1", 1, 1)
			s.mail("A1", bob, "")
			s.h.lives["A1"] = life{ended: s.tick(), unfinished: true}
			s.lead("A2", 2)
			s.claim("A2", 1, 2)
			s.mail("A2", ann, "send made")
			s.stamp("A2", 1, 1)
		}},
		"one is uncertain as the lead was lost": {tell: func(s *tale) {
			s.row(1, invitation, doubtful)
			s.claim("A1", 1, 1)
			s.mail("A1", bob, "", gone)
			s.lead("B1", 2)
			s.claim("B1", 1, 2)
			s.mail("B1", ann, "send made")
			s.stamp("B1", 1, 1)
		}},
		"one is uncertain as the link broke": {tell: func(s *tale) {
			s.row(1, invitation, doubtful)
			s.claim("A1", 1, 1)
			s.mail("A1", ann, "send made")
			s.mail("A1", bob, "")
			s.h.faults = append(s.h.faults, faultOn("mail link cut", "A-mail", s.now, s.tick()))
			s.sendClaim("send unknown", "A1", bob)
			s.stamp("A1", 1, 1)
		}},
		"one is uncertain as the other's link broke": {func(s *tale) {
			s.row(1, invitation, doubtful)
			s.claim("A1", 1, 1)
			s.mail("A1", ann, "send made")
			s.mail("A1", bob, "")
			s.h.faults = append(s.h.faults, faultOn("mail link cut", "B-mail", s.now, s.tick()))
			s.sendClaim("send unknown", "A1", bob)
			s.stamp("A1", 1, 1)
		}, []string{"G11 doubt"}},
		"one is uncertain and the link broke later": {func(s *tale) {
			s.row(1, invitation, doubtful)
			s.annAndBob("send unknown")
			s.h.faults = append(s.h.faults, faultOn("mail link cut", "A-mail", s.tick(), s.tick()))
		}, []string{"G11 doubt"}},
		"more are uncertain than were on their way": {func(s *tale) {
			for id := range int64(mailConnections + 1) {
				to := "1." + event(id) + "@example.com"
				s.row(id, doubtful, func(r *row) { r.topic, r.key, r.recipients = "mail", "", []string{to} })
				s.claim("A1", id, 1)
				s.sendClaim("send claimed", "A1", to)
			}
			s.h.lives["A1"] = life{ended: s.tick(), unfinished: true}
		}, []string{"G11 crowd"}},
		"a mail of a transaction that was rolled back is sent": {func(s *tale) { s.mail("A1", ann, "send made") }, []string{"G1 committed"}},
		"a mail overtakes": {func(s *tale) {
			s.row(1, invitation)
			s.row(2, func(r *row) { r.topic, r.recipients = "mail", []string{"1.c@example.com"} })
			s.claim("A1", 2, 1)
			s.sendClaim("send claimed", "A1", "1.c@example.com")
			s.send("", 2, 0, func(one *send) { one.queue, one.recipient = mailServer, "1.c@example.com" })
			s.sendClaim("send made", "A1", "1.c@example.com")
			s.stamp("A1", 2, 1)
			s.both("A1", 1)
		}, []string{"G3 order"}},
	}.check(t)
}
