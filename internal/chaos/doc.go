// Package chaos runs two instances of pgrelay between a real PostgreSQL, an SQS over HTTP and a
// mail server, with writers that never rest and everything going wrong at once. Its other tests
// are those of the plan and of the checks.
//
// A seed decides the plan: which faults, when, for how long, against what. What the
// machine makes of it differs from run to run, so a seed that failed may have to run more than
// once before it fails again.
//
//	make chaos CHAOS_MINUTES=5 CHAOS_SEED=7
//	make chaos CHAOS_MINUTES=30 CHAOS_SEED=1,2,3   # ten minutes each
//
// As part of the ordinary tests it runs half a minute of one seed.
//
// # What is recorded
//
// Triggers write each change of an outbox row, each claim of a row or of a send, each entry of
// the ledger, each key that a dead row holds or lets go and each change of the lead into a
// table, in the transaction that makes it: what a crash of the server takes back takes its
// record with it. The SQS notes every entry that is sent, by which process (each has an
// access key of its own), and what became of it. The mail server does so for each recipient, whose
// address names the event; which process it was the claim of the send says. The harness notes its
// faults and the lives of the processes.
//
// # What is checked
//
// When the faults have ended and everything has settled, from these records alone: see
// the check files, one for each guarantee. A violation is printed with the seed, the command that
// replays it, and all that is known around it. At the end of a run the figures are printed as the
// tables that docs/reliability.md shows.
package chaos
