// Package protocol holds no code: its test is a model of how pgrelay moves a row, small enough to be tried out
// completely.
//
// # What it does
//
// A state of the model is everything that matters at one moment: the outbox rows with their versions (xmin) and
// marks, the tables failures, claims and leader, who holds the advisory lock, what each of two instances has in
// memory, which calls and statements are on their way, and what the destination has accepted. A step is one thing
// that can happen next: an owner commits, a claim commits, its reply arrives, a process is killed. Many steps are
// possible in most states. The test begins with one state, takes every possible step, then every possible step from
// each state so reached, until there is no new one (some 940,000 in all). Whatever order of events the bounds allow
// has then been seen, also those that nobody thought of. The search goes breadth first, so the trace that it prints
// for a broken guarantee is a shortest one.
//
// Bounds: two rows at most, two instances at most, and two faults or acts of an owner at any moments; one where rows
// also arrive meanwhile or the poller is alone, three where that mattered. Each scenario in protocol_test.go names the
// kinds that it combines; kinds that no scenario holds together are not tried together.
// `go test ./internal/protocol -faults 1` allows one more everywhere and takes many minutes.
//
// # What it checks
//
// In every state: nothing uncommitted is published (G1); nothing is accepted more often than once and once again for
// each of G2's reasons (an unknown outcome; a death or a lost lead between send and stamp; a stamp that a crash of
// the server took back; a change in flight; a re-arm), which are counted for each row; no row is sent before an
// earlier unsettled one of its key (G3); who sends holds the lock, and no stamp counts after another instance has led
// (G7); what the leader has in flight is in its claim until the very statement that settles it.
//
// From every state: when no more faults happen, the relay's own steps end with each committed row published as its
// owner wrote it last, or dead (G1). The regular full look is left out of this, except for rows set back by hand, so
// a row that only the sweep would find counts as lost.
//
// A second test takes out one rule of the protocol at a time and names the guarantee that breaks; with -v it prints
// the traces.
//
// # How statements are modelled
//
// A statement is sent, takes effect, and is answered: three steps, between which anything else happens. Its effect is
// one step, snapshot and commit together. That is right for the stamp, because it locks claims and rows first, and
// for the claim, because what could change between its snapshot and its locks (a stamp of the same row) is excluded
// before it is sent: that exclusion is a step of its own. A stamp whose connection is lost may still run at any later
// time, and so may a call that was given up. A crash of the server takes back everything since the last flush;
// owners' commits flush, the relay's don't. Freezing needs no step: an instance that takes none is frozen. Only what
// time does to it is a step: its ping grows old, the server ends its session.
//
// # What is left out
//
// Several outboxes and destinations, pauses, at_most_once, partitions, `status` tables, `ready`, `join` and deferred
// rows; generations (a FIFO queue drops more repeats than the model allows); crash accounting; the lower bound of the
// key probe; bounded queues (a dropped id is the same as one lost with the session); deletes (a row settled by hand
// stands for them); failover to a server that lacks flushed commits. Owners commit synchronously: a row of a
// transaction with synchronous_commit=off can be sent by the poller and then be lost in a crash. A session that the
// server ends by itself is noticed at once unless its instance is frozen; in truth until the connection's end has
// arrived, for at most 3 s, a leader can go on sending beside its successor.
//
// # Where the design had to be mended
//
// The model holds these rules, each of which a first design lacked or stated otherwise (the names G1, G2 … are those of
// docs/guarantees.md):
//
//   - Taking the lead (epoch and release) is one transaction that is flushed (synchronous_commit=local). Else a crash
//     of the server takes both back, epochs repeat, and a deposed leader's stamp counts.
//   - The fence compares the claim's epoch as well as its id: a crash lets the sequence give out ids again.
//   - Only an instance's own outcomes go with the stamps. A take-over's release and the sweep run on the session that
//     holds the lock; elsewhere they could land late and take away the next leader's claims. They go by id: what
//     memory has dropped leaves a claim that it still holds for other rows.
//   - A read-back first takes its ids out of their claims, so that the stamp in doubt can't run any more.
//   - What leaves the in-flight set and is still pending is asked for again from memory; it may lie below the
//     low-water mark.
//   - A row behind its key is asked for again at once when something settled since its claim was sent, and by timer,
//     because a late stamp or a person settles rows without a word.
//   - A full look follows each start of the stream, not only the taking of the lead (a frozen leader's stream can
//     still acknowledge ids), and another one when those who were writing during it have ended, or the low-water mark
//     starts anew with its own rule.
package protocol
