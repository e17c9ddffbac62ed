// Package stage is what the demo and the runners of the examples play on: a PostgreSQL that is thrown away, an SQS and a mail server in memory,
// the real pgrelay beside them as a user would run it, and a page on which each act says what it does.
//
// Whatever it started is gone when a play ends, also by a signal; where it is killed, the kernel ends its children. A play fails
// when an act does, when pgrelay ends by itself, or when it takes longer than five minutes.
package stage
