// Package pgtest gives tests a real PostgreSQL.
//
// [New] hands out a database of its own on a server that the whole test binary
// shares, [Migrated] one that has the schema pgrelay already; both are gone when the
// test ends. [StartServer] starts a server for one test, which may stop, crash and
// configure it as it likes.
//
// Servers live in a temporary directory, listen on loopback and on a socket in that
// directory, trust everybody and do not sync to disk unless asked (setting fsync).
// A test binary that starts any must run its tests through [Main], which stops them
// and looks for leaked goroutines. A binary that is killed takes its servers with it,
// because the kernel tells the postmaster that its parent is gone.
//
// The binaries are those in PGRELAY_TEST_PGBIN, a directory, or else the newest
// under /usr/lib/postgresql. Where PGRELAY_TEST_PGVERSION is set, a server of another
// major version fails the test, so that a version matrix can't lie.
//
// Whatever goes wrong ends the test with the server's log: a test without its
// database fails, it is never skipped.
package pgtest
