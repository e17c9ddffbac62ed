// Package replication streams the ids of inserted rows out of PostgreSQL's WAL. It
// owns the publication, the replication slot and the one connection that reads it.
//
// What it promises:
//
//   - A row of a committed transaction that the publication carries is handed to the
//     [Sink] once it is decoded, and whenever rows may have been missed (a new
//     connection, a new slot, an altered publication) the sink is told to catch up.
//     A row of a rolled-back transaction is never handed over. A row may come again
//     after a reconnect: the server forgets what was confirmed last when it stops.
//   - The slot holds no WAL back because of us: it is acknowledged as soon as the sink
//     has the id, follows keepalives while nothing is half received, and is replaced
//     when it holds more than Config.MaxRetainedWAL.
//   - It never drops or uses a slot of another database or plugin, nor one that
//     somebody holds, and alters only publications that its role owns and that
//     publish nothing but inserts.
//   - Memory does not grow with the size of a transaction or the number of partitions.
//
// How it fails: [Stream.Run] never gives up. What a person has to mend is an
// [*Unavailable] with a stable reason and a sentence that says how; it is logged when
// it changes and tried again, first after a second, then up to every ten. Meanwhile
// nothing is handed over, and whoever looks into the table itself goes on.
package replication
