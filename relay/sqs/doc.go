// Package sqs publishes to one Amazon SQS queue, standard or FIFO, through
// SendMessageBatch.
//
// What it promises: a message is delivered only when SQS named it in Successful
// with the MD5 of its body; every entry of a batch gets its own outcome; one call has
// one deadline and is sent once, because the relay owns the retries and the SDK's are
// off; a row is rejected only when it was refused alone or by its own entry; what is
// wrong with the queue, its keys, its network or its pace is a fault that names what
// to do and blames no row. Results and faults hold neither payload nor secret: of what
// SQS writes about a message only the code and the parameter's name are repeated.
//
// How it fails: where a request got a connection and no readable answer came back, its
// messages may be stored and are unknown. Where no connection was had nothing was sent and
// they go back. A 5xx answer is the destination's fault and the messages go back too: SQS
// answers 503 before it stores, on a FIFO queue the deduplication id absorbs a repeat, and
// a standard queue promises at least once anyway.
package sqs
