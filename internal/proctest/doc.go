// Package proctest is what tests of processes and of their logs share.
package proctest
