// Package deploytest holds deploy/, the Dockerfile and the operators' manuals to the
// program: alerts and dashboard ask for metrics that exist, each alert has its section in
// the runbook, configurations load, grace periods are longer than the drain, and the SQL
// of the manuals answers what they say. It has tests only.
//
// That the metrics in docs/monitoring.md, which the rest is compared with, are those of
// a running pgrelay is a test of package e2e.
package deploytest
