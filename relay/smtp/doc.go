// Package smtp sends mail: one SMTP transaction for each recipient of a message.
//
// A message's body is a JSON document (to, cc, subject, text, html, calendar, headers) that becomes
// a MIME message; docs/mail.md describes it. Whom a message goes to is told by Recipients; each call of
// Publish serves one of them, Message.Recipient.
//
// What it promises: it knows for each transaction how far it got. Before the final dot of DATA has left
// nothing can have been accepted, so the message goes back; after the dot an answer decides, and without one
// the outcome is unknown. A message is delivered when the dot was answered with 250. Only answers to RCPT, DATA and
// the dot are the message's (5xx: refused for good, 4xx: later); all that is said to connecting, TLS, login and MAIL is
// the destination's fault and charges no row. Nothing is sent twice by itself: only when a connection that had lain idle turns
// out to be dead at MAIL is the transaction begun again on a new one. TLS is verified, never downgraded, and
// passwords go over nothing else, except to this machine. Results and faults hold neither password nor
// address nor text: of what a server says to RCPT, DATA and the dot only the codes are repeated.
//
// How it fails: a server that accepts and doesn't say so within the call's deadline leaves an unknown outcome;
// one that takes the dot and then refuses by a bounce mail is not seen at all.
package smtp
