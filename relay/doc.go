// Package relay takes ids of outbox rows, from wherever they come, and moves each
// row once through claim, publish and stamp.
//
// What it promises is G1 to G4 and G7 to G10 of docs/guarantees.md: every committed row is
// published at least once or ends dead with its reason; none is published twice
// unless an outcome was unknown, the row changed while in flight, or somebody
// republished it; rows of one ordering key go out in order; a destination that is
// down costs no row an attempt.
//
// How it fails: a lost lead or an unreachable server stops sending at once and drops
// what was not sent; what was sent is stamped if its claim still stands, and
// otherwise found again by the next leader.
package relay
