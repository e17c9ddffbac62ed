// Command consumer takes pgrelay's messages from a queue, and each event has its effect once, however often it arrives.
// docs/consumers.md explains how, and what is left to whoever writes a consumer.
package main
