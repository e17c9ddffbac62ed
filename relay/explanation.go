package relay

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// RowState says in a word where a row is.
type RowState string

// The states of a row. All from StateInFlight on are pending by their mark.
const (
	StateNoRow     RowState = "no_row"
	StatePublished RowState = "published"
	StateDead      RowState = "dead"
	StateUncertain RowState = "uncertain"
	StateDiscarded RowState = "discarded" // its mark says dead, and no dead letter does
	StateInFlight  RowState = "in_flight"
	StateAbandoned RowState = "abandoned" // in flight in an instance that doesn't lead any more
	StateNoRoute   RowState = "no_route"
	StateUnjoined  RowState = "unjoined"  // the join finds nothing for it
	StateNotReady  RowState = "not_ready" // what it has to meet to go is not met
	StateAmbiguous RowState = "ambiguous" // the join finds several rows for it
	StateDeferred  RowState = "deferred"
	StateRetrying  RowState = "retrying"
	StateBehind    RowState = "behind"  // an earlier row of its ordering key goes first
	StateLocked    RowState = "locked"  // by somebody's transaction
	StateTaken     RowState = "taken"   // somebody else is processing it
	StateForeign   RowState = "foreign" // its status is none that the relay knows
	StateNoLeader  RowState = "no_leader"
	StatePaused    RowState = "paused"   // its destination is
	StateRefused   RowState = "refused"  // its table refuses the relay's statements
	StateSuspect   RowState = "suspect"  // it came back from dead processes, and waits for a turn of its own
	StateRecorded  RowState = "recorded" // its event is in the ledger: the next claim has it stamped without sending it
	StateFree      RowState = "free"
	// StateUnreadable: the user's SQL fails for it.
	StateUnreadable RowState = "unreadable"
	// StateTableLocked: nobody can say more, because nobody can read the table.
	StateTableLocked RowState = "table_locked"
)

// Explanation says why a row is where it is, and what to do.
type Explanation struct {
	Table string   `json:"table"`
	ID    string   `json:"id"`
	State RowState `json:"state"`
	// Text is one or two sentences for a person; Notes are what he should know beside it.
	Text  string   `json:"text"`
	Notes []string `json:"notes,omitempty"`

	Kind        string `json:"kind,omitempty"`
	Destination string `json:"destination,omitempty"`
	OrderingKey string `json:"ordering_key,omitempty"`
	// Since is when that began, Until when it ends by itself, where that is known.
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Attempts int        `json:"attempts"`
	Unknowns int        `json:"unknowns"`
	Crashes  int        `json:"crashes"`
	Reason   string     `json:"reason,omitempty"`
	Detail   string     `json:"detail,omitempty"`
	// HeldBy is the row that goes first.
	HeldBy *Explanation `json:"held_by,omitempty"`
}

// heldBy names the row that goes first.
func (e *Explanation) heldBy(first Explanation) {
	e.HeldBy = &first
	if first.State == StateDead || first.State == StateUncertain {
		e.Text = fmt.Sprintf("Row %s, which comes before it in its ordering key, is %s, and its route holds the key for it (on_dead: block). "+
			"This row goes when that one has been retried or discarded.", first.ID, first.State)
		return
	}
	e.Text = fmt.Sprintf("Row %s comes before it in its ordering key and goes first; that row is %s.",
		first.ID, strings.ReplaceAll(string(first.State), "_", " "))
}

// explaining is an explanation in the making.
type explaining struct {
	rowFacts
	Surroundings
	table *Table
	out   Explanation
}

// judge explains a row by what is known of it.
func (t *Table) judge(f rowFacts, around Surroundings) Explanation {
	x := &explaining{rowFacts: f, Surroundings: around, table: t, out: Explanation{
		Table: t.Name, ID: f.ID, Kind: f.Kind, Attempts: f.Attempts, Unknowns: f.Unknowns, Crashes: f.Crashes, Reason: f.Reason, Detail: f.Detail,
	}}
	if f.There && f.Route >= 0 {
		x.out.Destination = t.cfg.Routes[f.Route].To
	}
	if f.OrderingKey != nil {
		x.out.OrderingKey = *f.OrderingKey
	}
	switch {
	case !f.There:
		x.missing()
	case !f.Pending:
		x.settled()
	case f.ClaimedBy != nil:
		x.claimed()
	case f.Processing:
		x.taken()
	default:
		x.waiting()
	}
	if f.Pending {
		x.remarks()
	}
	return x.out
}

// judgeFault explains a row of which join, select and ready can't be asked.
func (t *Table) judgeFault(id string, fault error) Explanation {
	x := &explaining{table: t, out: Explanation{Table: t.Name, ID: id}}
	x.say(StateUnreadable, "Its join, select or ready fails, so it can't be claimed: %s. It is tried again each %s at the latest, and others go on. "+
		"Correct what it finds, or have the SQL stand it (NULLIF, CASE).", PublicError(fault), unreadableMost)
	return x.out
}

// judgeLock explains a row whose table can't be read.
func (t *Table) judgeLock(f rowFacts) Explanation {
	x := &explaining{rowFacts: f, table: t, out: Explanation{Table: t.Name, ID: f.ID, Since: f.HolderSince}}
	if x.holder() == "" {
		x.say(StateTableLocked, "The table was locked against every reader a moment ago, and no more; ask again.")
	} else {
		x.say(StateTableLocked, "The whole table is locked by %s; its rows go when that ends. %s", x.holder(), x.release())
	}
	return x.out
}

func (x *explaining) say(state RowState, format string, args ...any) {
	x.out.State, x.out.Text = state, fmt.Sprintf(format, args...)
}

func (x *explaining) note(format string, args ...any) {
	x.out.Notes = append(x.out.Notes, fmt.Sprintf(format, args...))
}

func (x *explaining) missing() {
	x.say(StateNoRow, "There is no row with this key: it was never inserted, its transaction was rolled back or has not committed yet, or it was deleted.")
	if x.table.Deletes() {
		x.note("on_published is delete: it may have been published, and deleted then")
	}
	switch {
	case x.table.Own():
		x.note("published rows of this table are deleted after retention.published")
	case x.table.Retention() > 0:
		x.note("its outbox says retention: settled rows are deleted after %s", x.table.Retention())
	}
	if x.FailedDeadAt != nil {
		x.note("a dead letter remembers it, %s; forget it with: %s", x.why(), x.command("dead discard"))
	}
	if x.Filtered {
		x.note("row security is in force for this role and may hide it; `pgrelay check` says how to mend that")
	}
}

func (x *explaining) settled() {
	died := x.FailedDeadAt != nil
	x.out.Since = x.FailedDeadAt
	switch {
	case x.table.foreign(x.Status):
		x.foreign()
	case x.Published && (x.table.ownDeadMark() || !died): // without dead_at it is the mark of a dead row as well
		x.out.Since = x.PublishedAt
		force := ""
		if x.RecordedAt != nil {
			force = " --force"
			x.note("its event is in the ledger %s%s, which --force deletes it from", x.table.Ledger.Name, x.at(x.RecordedAt))
		}
		if len(x.Sent) > 0 {
			force = " --force"
			x.note("its sends are claimed in %s, to %s; --force deletes those claims", x.table.Sends.Name, listed("", x.Sent))
		}
		x.doubts()
		x.say(StatePublished, "It was published%s. To send it again, run: %s%s", x.at(x.PublishedAt), x.command("republish"), force)
		if x.table.stampsMalformed() {
			x.note("on_malformed is stamp: a malformed row that was stamped without being sent looks the same; the log tells of those")
		}
		if !x.table.ownDeadMark() {
			x.note("the table has no dead_at: a row that died and whose dead letter was discarded looks the same")
		}
		if died {
			x.note("a dead letter is left over from before, %s; forget it with: %s", x.why(), x.command("dead discard"))
		}
	case died && x.Uncertain && x.table.Sends != nil:
		x.say(StateUncertain, "Whether it arrived%s is unknown, %s. It is not sent again by itself. If it arrived, run: %s --sent; if it did not: %s --retry",
			listed(" at ", x.Unsent), x.why(), x.resolve(), x.resolve())
		if len(x.Sent) > 0 {
			x.note("it was sent to %s, and is not sent to them again", listed("", x.Sent))
		}
	case died && x.Uncertain:
		x.say(StateUncertain, "Whether it arrived is unknown, %s. It is not sent again by itself; if it did not arrive, run: %s", x.why(), x.command("republish"))
	case died:
		x.say(StateDead, "It is dead, %s. Mend the cause and run: %s", x.why(), x.command("dead retry"))
		if len(x.Sent) > 0 {
			x.note("it was sent to %s, and is not sent to them again", listed("", x.Sent))
		}
		x.doubts()
		if x.Holds && x.table.Blocks() {
			x.note("it holds its ordering key (on_dead: block); to let the key go on without it, run: %s", x.command("dead discard"))
		}
	default:
		x.out.Since = x.DeadAt
		mark := x.table.names.deadAt + " is set"
		if x.Status != nil {
			mark = x.table.names.status + " is " + *x.Status
		}
		x.say(StateDiscarded, "Its %s%s and no dead letter stands for it: it was discarded, or somebody set it by hand. To send it after all, run: %s",
			mark, x.at(x.DeadAt), x.command("republish"))
	}
}

// malformed says what becomes of a row that has no message, unless a person mends it.
func (x *explaining) malformed(mend string) string {
	if x.table.stampsMalformed() {
		return "stamps it without sending it, as on_malformed says. " + mend + ", and if it is stamped by then, run: " + x.command("republish")
	}
	return "makes it dead. " + mend + ", and if it is dead by then, run: " + x.command("dead retry")
}

// bringBack says how to have those sent of which a route died.
func (x *explaining) bringBack(reason string) string {
	if x.table.stampsMalformed() {
		return "republish those that were stamped: the log names them"
	}
	return fmt.Sprintf("run: pgrelay dead retry --table %s --all --reason %s", shellWord(x.out.Table), shellWord(reason))
}

func (x *explaining) claimed() {
	x.out.Since = x.ClaimedAt
	if *x.ClaimedBy != x.leads() {
		x.say(StateAbandoned, "Instance %s claimed it%s and does not lead any more; %s", *x.ClaimedBy, x.at(x.ClaimedAt), x.takesUp())
		return
	}
	x.say(StateInFlight, "Instance %s, which leads, claimed it%s and is sending it; it gets its outcome when %s answers. "+
		"If it stays, look for its id in the leader's log.",
		*x.ClaimedBy, x.at(x.ClaimedAt), cmp.Or(x.out.Destination, "its destination"))
	if x.holder() != "" {
		x.note("its row is locked by %s, and its outcome can't be written before that ends", x.holder())
	}
	if x.problem() != "" {
		x.note("its table refuses what the relay does to it, which is tried again within %s: %s", quietMost, x.problem())
	}
}

func (x *explaining) takesUp() string {
	if x.leads() == "" {
		return "nobody does. Start `pgrelay run`, which takes it up at once."
	}
	return "instance " + x.leads() + " does, and takes it up before it claims anything of this outbox."
}

// waiting explains a pending row that nobody has claimed. What the row itself waits for comes before what all wait for.
func (x *explaining) waiting() {
	destination, paused := x.destination()
	switch {
	case !x.Due && x.AvailableAt == nil:
		x.say(StateDeferred, "Its producer deferred it for ever: its %s is infinity. Set that to a time, or to NULL.", x.table.names.availableAt)
	case !x.Due:
		x.out.Until = x.AvailableAt
		x.say(StateDeferred, "Its producer deferred it: it goes%s.", x.at(x.AvailableAt))
	case !x.Joined:
		x.say(StateUnjoined, "The join finds nothing for it, so it waits until it does; looks ask each %s. Its outbox has: %s", x.Interval, oneLine(x.table.cfg.Join))
	case !x.Ready:
		x.say(StateNotReady, "It is not ready: this is not true of it: %s. It goes when it is; looks ask each %s.",
			oneLine(strings.Join(x.False, "; nor is this: ")), x.Interval)
	case x.Route == routeSeveral:
		x.say(StateAmbiguous, "The join finds several rows for it, so the next claim %s", x.malformed("Make it find one"))
	case x.Route < 0 && x.barred() == nil:
		x.say(StateNoRoute, "No route of outbox %s matches its kind %q, so the next claim %s",
			x.table.Name, x.Kind, x.malformed("Add a route"))
	case x.Failed && x.FailedDeadAt == nil && x.NextAttempt.After(x.Now):
		x.out.Until = x.NextAttempt
		x.say(StateRetrying, "It is tried again%s: %s", x.at(x.NextAttempt), x.tries())
	case x.Earlier != nil:
		x.out.State = StateBehind // heldBy finds the words
	case x.holder() != "":
		x.out.Since = x.HolderSince
		x.say(StateLocked, "Its row is locked by %s; it goes when that ends. %s", x.holder(), x.release())
	case x.leads() == "":
		x.out.Since = x.LeaderAt
		x.say(StateNoLeader, "Nothing holds it, but no instance leads%s. Start `pgrelay run`.", x.lastLeader())
	case x.barred() != nil:
		r := x.barred()
		x.say(StatePaused, "Route %s is paused for %s: %d of its rows in a row died of %s. One row of it is tried in %s, and all go when one gets through. "+
			"Mend the cause, restart pgrelay if its configuration was the cause, and %s",
			r.Route, seconds(r.PausedSeconds), guardDeaths, sentence(r.Reason, r.Detail), seconds(r.ProbeSeconds), x.bringBack(r.Reason))
	case paused:
		x.say(StatePaused, "%s", destination)
	case x.problem() != "":
		x.say(StateRefused, "Its table refuses what the relay does to it, and is tried again within %s: %s", quietMost, x.problem())
	case x.FailedDeadAt == nil && x.Crashes >= 2:
		x.say(StateSuspect, "It was in flight in %d processes that died, so it goes alone, when nothing else is in flight, in turns with the others.", x.Crashes)
	case x.RecordedAt != nil:
		x.out.Since = x.RecordedAt
		x.say(StateRecorded, "Its event is in the ledger %s%s, so the next claim stamps it and does not send it. To send it again all the same, then run: %s --force",
			x.table.Ledger.Name, x.at(x.RecordedAt), x.command("republish"))
	default:
		x.say(StateFree, "Nothing holds it and instance %s leads: it goes within %s. If it stays, %s", x.leads(), x.Interval, destination)
	}
}

// remarks are what is to be known of any pending row.
func (x *explaining) remarks() {
	if x.FailedDeadAt != nil {
		x.note("pgrelay.failures calls it dead%s; the mark says pending and wins, and the next claim resets that entry", x.at(x.FailedDeadAt))
	}
	if x.RecordedAt != nil && x.out.State != StateRecorded {
		x.note("its event is in the ledger %s%s: when its turn comes it is stamped and not sent", x.table.Ledger.Name, x.at(x.RecordedAt))
	}
	if x.leads() == "" && x.out.State != StateNoLeader && x.out.State != StateAbandoned {
		x.note("no instance leads%s; nothing goes before `pgrelay run` is started", x.lastLeader())
	}
}

// leads is the instance that leads, empty if none shows itself.
func (x *explaining) leads() string {
	if x.Leader == nil || x.Now.Sub(*x.LeaderAt) >= AliveWithin {
		return ""
	}
	return *x.Leader
}

func (x *explaining) lastLeader() string {
	if x.Leader == nil {
		return ""
	}
	return fmt.Sprintf(": %s did, and was last seen%s", *x.Leader, x.at(x.LeaderAt))
}
