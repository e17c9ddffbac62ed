// Package admin serves metrics, health and the relay's state over HTTP. It answers from memory and never
// waits for PostgreSQL or a destination, so that a probe can't hang with them.
package admin
