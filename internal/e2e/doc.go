// Package e2e holds the tests of the whole: pgrelay's command line as a process of its
// own, between a real PostgreSQL and an SQS over HTTP. Each test is a promise that the
// relay makes to its user.
package e2e
