package config

import (
	"net"
	"net/mail"
	"regexp"
	"strings"
)

// How TLS begins at a mail server.
const (
	TLSStart    = "starttls" // by STARTTLS, which the server must offer
	TLSImplicit = "tls"      // with the connection
	TLSNone     = "none"
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$`)

// mail checks a destination of type smtp.
func (v *validator) mail(key string, d Destination) {
	switch {
	case d.Host == "":
		v.report(key+".host", "is required: the mail server's name or address")
	case net.ParseIP(d.Host) == nil && (len(d.Host) > 253 || !hostName.MatchString(d.Host)):
		v.report(key+".host", "must be a host's name or address, without port")
	}
	v.oneOf(key+".tls", d.TLS, TLSStart, TLSImplicit, TLSNone)
	if v.given(key + ".port") {
		between(v, key+".port", d.Port, 1, 65535)
	}
	switch user, password := v.given(key+".username"), v.given(key+".password"); {
	case user && !password:
		v.report(key+".password", "is required with a username")
	case password && !user:
		v.report(key+".username", "is required with a password")
	case user && (d.Username == "" || strings.ContainsRune(d.Username, 0)):
		v.report(key+".username", "must be a name; leave username and password out for a server that wants no login")
	case user && (d.Password == "" || strings.ContainsRune(string(d.Password), 0)):
		v.report(key+".password", "must not be empty; leave username and password out for a server that wants no login")
	case user && d.TLS == TLSNone && !Loopback(d.Host):
		v.report(key+".tls", "can't be none with a password, which anybody on the way could read; only a server on this machine may have that")
	}
	v.from(key+".from", d.From)
	if v.given(key + ".linger") {
		v.report(key+".linger", "does not belong to a destination of type smtp: each mail goes by itself")
	}
}

func (v *validator) from(key, from string) {
	if from == "" {
		v.report(key, `is required: the sender's address, or "Name <address>"`)
		return
	}
	a, err := mail.ParseAddress(from)
	switch {
	case err != nil || strings.ContainsFunc(from, func(r rune) bool { return r < ' ' || r == 0x7f }):
		v.report(key, `must be one address, or "Name <address>"`)
	case strings.ContainsFunc(a.Address, func(r rune) bool { return r >= 0x80 }):
		v.report(key, "must have an address of ASCII alone, which every server takes; write a domain with other letters as xn--…")
	}
}

// Loopback says whether a host is this machine by its name.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// suitsMail refuses what only queues have.
func (v *validator) suitsMail(key string) {
	for _, name := range []string{"group", "dedup_id", "delay"} {
		if v.given(key + "." + name) {
			v.report(key+"."+name, "belongs to queues; mail has none")
		}
	}
	if v.given(key + ".attributes") {
		v.report(key+".attributes", "belongs to queues; a mail's own headers stand in its document, under headers")
	}
}
