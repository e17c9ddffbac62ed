// Package exampletest runs an example in a test: the schema.sql and pgrelay.yaml that lie beside the test, on a database of
// its own and an SQS in memory, with the test binary as pgrelay.
//
// A test binary that uses it runs its tests through [Main].
package exampletest
