// Package stdout publishes to a writer: one JSON line a message, in order.
//
// What it promises: a message is delivered when its whole line has been written, with
// the body as a JSON string that decodes to the body byte for byte; lines of concurrent
// calls never mix; a line that was cut is ended before the next one begins.
//
// How it fails: a write error (a full disk, a closed pipe) is a fault of the destination; what
// was not written goes back, and the line that was cut is unknown. A writer that blocks
// holds a call only until its deadline. A process that writes to its standard
// output must ignore SIGPIPE, or the kernel ends it before there is an error to see.
package stdout
