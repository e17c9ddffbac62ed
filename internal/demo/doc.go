// Command demo shows pgrelay at work: `make demo` runs it.
//
// It starts a PostgreSQL of its own and the in-memory SQS of package sqstest, runs the
// real program beside them as a user would, and leads through what a relay has to do:
// rows arrive, a rollback sends nothing, a key keeps its order, an outage loses nothing,
// a dead letter is mended, a row is sent again.
//
// It exits with 0 only if its count adds up: every committed row arrived, in order, none
// twice unasked, none that was rolled back. Whatever it started is gone when it ends, also
// by a signal; where it is killed, the kernel ends its children.
package main
