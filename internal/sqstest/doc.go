// Package sqstest is an in-memory Amazon SQS for tests and for the demo: an
// http.Handler that speaks the AWS JSON 1.0 protocol to any AWS SDK.
//
// It promises to answer a sender as AWS does: standard and FIFO queues, every limit,
// character rule and error code that SendMessage and SendMessageBatch meet, in both of
// AWS's spellings (`__type` in the body, `x-amzn-query-error` in the header). Where AWS's
// behaviour is not known the code says "unverified" next to the choice that it makes.
// Receiving, deleting and visibility are there so that a reader can empty a queue in
// the order that AWS keeps.
//
// Beyond AWS it keeps a journal of everything that it accepted (Server.Messages), of
// the calls that it got (Server.Calls), and lets a test break any request (Server.SetFault)
// and move the clock (Server.Advance). Journals grow without bound unless WithHistory says
// otherwise.
//
// It checks no signature and no policy, moves nothing to dead-letter queues, and has no
// throttle and no bound on messages in flight of its own: a fault plays those.
package sqstest
