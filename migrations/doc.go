// Package migrations makes, changes and removes the schema pgrelay.
//
// [Up] brings the schema to this program's version and [Down] removes it with all that
// is in it: the outbox pgrelay.outbox_events and its unpublished messages, dead letters
// and ledgers are lost. Both take an advisory lock, so two that run at once don't get
// in each other's way. Up works beside a relay that runs; Down refuses to. They need the
// owner of the database (or CREATE on it) and no superuser. [Status] and [Check] only
// read.
//
// Each migration is a file under sql and runs in a transaction: one that fails leaves
// those before it applied and nothing of itself. Down refuses while something that is
// not pgrelay's hangs on the schema, such as a user's view.
package migrations
