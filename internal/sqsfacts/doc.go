// Package sqsfacts is what a sender meets at SQS, as a table of facts that any server
// can be held to: internal/sqstest, which the other tests believe; fauxqs
// (internal/stranger), which others wrote; and AWS itself, under the build tag aws.
//
// Each fact bears a mark that says how it is known and has a queue of its own, which is
// deleted after it. A fact fails by an error that says what the server did instead.
//
// Facts that need a clock that moves (the end of the deduplication window, delays,
// retention), those of readers and those of making queues are in internal/sqstest's own tests.
package sqsfacts
