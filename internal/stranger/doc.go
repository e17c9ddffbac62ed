// Package stranger runs fauxqs, an SQS in memory by people who don't know ours, for tests:
// what pgrelay and internal/sqstest believe of SQS is held to a second opinion.
//
// It needs Node.js and what `.ci/install stranger` puts into testdata; a test that starts
// it without these fails and says so. The processes listen on loopback and end with the
// test, or with the process of the test.
package stranger
