// Package cli is pgrelay's command line: it parses, loads the configuration, wires the
// parts together and runs them.
//
// [Main] answers with 0 when it did what was asked, with 1 when that failed or a check
// failed, and with 2 when the command line or the configuration is wrong. Errors go to
// standard error, without secrets or payloads.
package cli
