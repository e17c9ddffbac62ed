// Package poller decides when to look for outbox rows by SQL: after everything that
// may have been missed, for what is due, and regularly. What it finds it offers to the
// relay by id; how a row is published it does not know.
//
// It promises that every row that is pending, due and has a destination that takes rows is offered
// within an interval of becoming so if no look is expensive, and within a sweep
// interval in any case; rows that wait for a time are offered when it comes.
//
// It also runs the jobs that put work into outboxes, on time and on the leader: see [Scheduler].
//
// How it fails: a lost connection is made again with backoff, and followed by a full look; a
// table that refuses a look is left alone for a while, and the others go on.
package poller
