// Command pgrelay relays the rows of transactional outbox tables in one PostgreSQL
// database to Amazon SQS.
//
// It exits with 0 when it did what was asked, with 1 when that failed or a check
// failed, and with 2 when the command line or the configuration is wrong.
package main
