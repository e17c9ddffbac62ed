// Package check is the doctor behind `pgrelay check`: it looks at everything that a
// relay needs and says, for each thing that is wrong, what to run.
//
// What it promises: it goes on after a failure, so that one run names all that is
// wrong; what follows from something named already is skipped and not named again. It
// writes nothing, neither to the database nor to a destination, and its session could
// not: it is read-only. Each step has a deadline, so that a server that doesn't answer costs
// seconds. No line holds a secret or a part of a row.
//
// How it fails: a step that cannot look is itself a failing line. What was read (facts)
// is judged by pure functions.
package check
