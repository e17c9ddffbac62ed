// Package publishertest is the contract that every relay.Publisher passes.
//
// Run puts a publisher through what the relay relies on: one result per message and in
// order, delivered means arrived byte for byte, calls that end by their own deadline or
// their context and admit that the outcome is unknown, faults that charge no message, and
// words that hold no payload.
package publishertest
