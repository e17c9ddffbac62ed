// Package stranger runs servers by people who don't know ours, for tests: fauxqs, an SQS in memory, and
// aiosmtpd, a mail server, whose mails Python's parser reads. What pgrelay and its own test servers believe of
// SQS, SMTP and MIME is held to a second opinion.
//
// fauxqs needs Node.js and what `.ci/install stranger` puts into testdata, aiosmtpd Debian's packages that `.ci/install mail`
// installs; a test that starts one without these fails and says so. The processes listen on loopback and end with the
// test, or with the process of the test.
package stranger
