// Package smtptest is a mail server in memory for tests, which breaks where it is told to: it can refuse any command
// with any answer, never answer, answer late, or cut the connection before or after it, also between the message's end and
// its answer. It keeps every mail that it accepted, with its recipient, its time and its connection.
//
// It is no model of a good server: it takes any address, and of each command only what the tests need is checked. What
// mails look like to other programs the tests of relay/smtp ask a server that others wrote.
package smtptest
