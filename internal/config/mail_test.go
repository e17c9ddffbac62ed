package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mailServer is a good destination with further keys.
func mailServer(more ...string) string {
	return destination("{" + strings.Join(append([]string{"type: smtp", "host: mail.example.com", "from: a@example.com"}, more...), ", ") + "}")
}

func TestMailServerHasDefaultsByItsTLS(t *testing.T) {
	t.Parallel()
	for tls, port := range map[string]int{"": 587, "tls: starttls": 587, "tls: tls": 465, "tls: none": 25} {
		more := []string{"concurrency: 3"}
		if tls != "" {
			more = append(more, tls)
		}
		d := parse(t, mailServer(more...), nil).Destinations["x"]
		want := Destination{
			Type: TypeSMTP, Host: "mail.example.com", From: "a@example.com", Port: port, TLS: strings.TrimPrefix(tls, "tls: "), Concurrency: 3,
			Timeout: Duration(time.Minute), Pause: Pause{millis(250), seconds(10)},
		}
		if tls == "" {
			want.TLS = TLSStart
		}
		require.Equal(t, want, d)
		require.True(t, d.Ordered())
		require.False(t, d.FIFO())
	}
	d := parse(t, mailServer("port: 2525", "timeout: 5s", "username: u", "password: '${P}'"), env{"P": "pa: ss"}).Destinations["x"]
	require.Equal(t, []any{2525, seconds(5), "u", Secret("pa: ss"), 8}, []any{d.Port, d.Timeout, d.Username, d.Password, d.Concurrency})
}

func TestPasswordGoesUnencryptedToThisMachineAlone(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"localhost", "127.0.0.1", `"::1"`, "Localhost"} {
		parse(t, destination("{type: smtp, host: "+host+", tls: none, username: u, password: p, from: a@example.com}"), nil)
	}
}

func TestRefusesMailServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"no host":              {destination("{type: smtp, from: a@example.com}"), "3: destinations.x.host: is required: the mail server's name or address"},
		"host with port":       {destination("{type: smtp, host: 'mail:587', from: a@b.com}"), "4: destinations.x.host: must be a host's name or address, without port"},
		"port":                 {mailServer("port: 65536"), "4: destinations.x.port: must be between 1 and 65535"},
		"tls":                  {mailServer("tls: startls"), `4: destinations.x.tls: must be starttls, tls or none; did you mean "starttls"?`},
		"no password":          {mailServer("username: u"), "3: destinations.x.password: is required with a username"},
		"no username":          {mailServer("password: u"), "3: destinations.x.username: is required with a password"},
		"empty username":       {mailServer("username: ''", "password: p"), "4: destinations.x.username: must be a name; leave username and password out for a server that wants no login"},
		"empty password":       {mailServer("username: u", "password: ''"), "4: destinations.x.password: must not be empty; leave username and password out for a server that wants no login"},
		"password in the open": {mailServer("tls: none", "username: u", "password: p"), "4: destinations.x.tls: can't be none with a password, which anybody on the way could read; only a server on this machine may have that"},
		"no from":              {destination("{type: smtp, host: mail}"), `3: destinations.x.from: is required: the sender's address, or "Name <address>"`},
		"from two":             {destination("{type: smtp, host: mail, from: 'a@b.com, c@d.com'}"), `4: destinations.x.from: must be one address, or "Name <address>"`},
		"from with line":       {destination(`{type: smtp, host: mail, from: "A\r\n <a@b.com>"}`), `4: destinations.x.from: must be one address, or "Name <address>"`},
		"from beyond ASCII":    {destination("{type: smtp, host: mail, from: ä@example.com}"), "4: destinations.x.from: must have an address of ASCII alone, which every server takes; write a domain with other letters as xn--…"},
		"queue":                {mailServer("queue: q"), "4: destinations.x.queue: does not belong to a destination of type smtp"},
		"linger":               {mailServer("linger: 1s"), "4: destinations.x.linger: does not belong to a destination of type smtp: each mail goes by itself"},
		"host of a queue":      {destination("{type: sqs, queue: q, host: mail}"), "4: destinations.x.host: does not belong to a destination of type sqs"},
		"password of stdout":   {destination("{type: stdout, password: p}"), "4: destinations.x.password: does not belong to a destination of type stdout"},
		"concurrency":          {mailServer("concurrency: 0"), "4: destinations.x.concurrency: must be between 1 and 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, test.text, nil, test.want)
		})
	}
}

func TestRefusesOfMailRoutesWhatQueuesHave(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{"group": "g", "dedup_id": "d", "delay": "30s"} {
		requireRefused(t, mailRoute(key+": "+value), nil, "4: outboxes[0].routes[0]."+key+": belongs to queues; mail has none")
	}
	requireRefused(t, mailRoute("attributes: {a: b}"), nil,
		"4: outboxes[0].routes[0].attributes: belongs to queues; a mail's own headers stand in its document, under headers")
	parse(t, mailRoute("body: '{{json .payload}}'", "order: none"), nil)
	requireRefused(t, mailRoute("delivery: at_least_once"), nil,
		"4: outboxes[0].routes[0].delivery: can't be at_least_once: mail goes at most once to each recipient, because nobody takes a second one back; leave it out")
	parse(t, mailRoute("delivery: at_most_once"), nil)
	parse(t, mailRoute("on_dead: block"), nil)
}

// mailRoute is a file whose one route goes to a mail server.
func mailRoute(more ...string) string {
	return `database: {url: "postgres://localhost/db"}
destinations: {x: {type: smtp, host: mail, from: a@example.com}}
outboxes:
  - {table: t, routes: [{` + strings.Join(append([]string{`kind: "*"`, "to: x"}, more...), ", ") + `}]}
`
}
