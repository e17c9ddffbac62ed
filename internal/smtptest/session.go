package smtptest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// ready is the answer to DATA.
const ready = "354 go ahead"

// session is one connection.
type session struct {
	server *Server
	conn   net.Conn
	text   *textproto.Reader
	number int

	secure  bool
	user    string
	mails   int
	from    string
	to      string
	begun   bool
	hangsUp bool
}

func serve(s *Server, conn net.Conn, number int) {
	c := &session{server: s, number: number}
	c.use(conn)
	if s.options.TLS && !c.handshake() {
		return
	}
	if !c.answer(Command{Verb: "CONNECT"}, "220 smtptest ESMTP", nil) {
		return
	}
	for !c.hangsUp {
		line, err := c.text.ReadLine()
		if err != nil {
			return
		}
		verb, argument, _ := strings.Cut(line, " ")
		if !c.do(strings.ToUpper(verb), argument) {
			return
		}
	}
}

func (c *session) use(conn net.Conn) {
	c.conn = conn
	c.text = textproto.NewReader(bufio.NewReader(conn))
}

// answer decides what becomes of a command: then runs before the usual answer, if nothing goes wrong. False ends the session.
func (c *session) answer(command Command, usual string, then func()) bool {
	fault := c.faultOf(command)
	switch {
	case fault.Hang:
		<-c.server.stop
		return false
	case fault.Reply != "":
		usual = fault.Reply
	case fault.Cut:
		usual = ""
	}
	if then != nil && (usual != "" && usual[0] == '2' || usual == ready) {
		then()
	}
	if usual != "" && !c.write(usual) {
		return false
	}
	return !fault.Cut
}

// faultOf notes a command, asks what goes wrong with it and waits as long as that says.
func (c *session) faultOf(command Command) Fault {
	command.Session, command.Mail, command.Recipient = c.number, c.mails, c.to
	s := c.server
	s.mu.Lock()
	s.commands = append(s.commands, command)
	decide := s.fault
	s.mu.Unlock()
	if decide == nil {
		return Fault{}
	}
	fault := decide(command)
	if fault.Delay > 0 {
		select {
		case <-s.stop:
		case <-time.After(fault.Delay):
		}
	}
	return fault
}

func (c *session) write(reply string) bool {
	_, err := fmt.Fprintf(c.conn, "%s\r\n", strings.ReplaceAll(reply, "\n", "\r\n"))
	return err == nil
}

func (c *session) do(verb, argument string) bool {
	command := Command{Verb: verb, Argument: argument}
	switch verb {
	case "EHLO":
		return c.answer(command, c.extensions(), c.reset)
	case "STARTTLS":
		begins := false
		return c.answer(command, "220 go ahead", func() { begins = true }) && (!begins || c.handshake())
	case "AUTH":
		return c.auth(command)
	case "MAIL":
		return c.mail(command)
	case "RCPT":
		return c.rcpt(command)
	case "DATA":
		return c.data(command)
	case "RSET":
		return c.answer(command, "250 2.0.0 as you like", c.reset)
	case "NOOP":
		return c.answer(command, "250 2.0.0 nothing done", nil)
	case "QUIT":
		return c.answer(command, "221 2.0.0 bye", func() { c.hangsUp = true })
	}
	return c.answer(command, "500 5.5.1 no such command", nil)
}

func (c *session) handshake() bool {
	fault := c.faultOf(Command{Verb: "TLS"})
	if fault.Hang {
		<-c.server.stop
	}
	conn := tls.Server(c.conn, c.server.tls)
	if fault.Hang || fault.Cut || conn.HandshakeContext(context.Background()) != nil { // the server's end cuts it
		return false
	}
	c.use(conn)
	c.secure = true
	return true
}

func (c *session) extensions() string {
	o := c.server.options
	lines := append([]string{"smtptest", "ENHANCEDSTATUSCODES"}, o.Extensions...)
	if o.StartTLS && !c.secure {
		lines = append(lines, "STARTTLS")
	}
	if o.Username != "" && (c.secure || !o.StartTLS) {
		lines = append(lines, "AUTH "+strings.Join(c.mechanisms(), " "))
	}
	for i := range lines {
		separator := "-"
		if i == len(lines)-1 {
			separator = " "
		}
		lines[i] = "250" + separator + lines[i]
	}
	return strings.Join(lines, "\n")
}

func (c *session) mechanisms() []string {
	if c.server.options.Mechanisms == nil {
		return []string{"PLAIN", "LOGIN"}
	}
	return c.server.options.Mechanisms
}

// auth asks for what the mechanism needs. Its argument is not noted: it is the password.
func (c *session) auth(command Command) bool {
	mechanism, initial, _ := strings.Cut(command.Argument, " ")
	command.Argument = mechanism
	var user, password string
	switch strings.ToUpper(mechanism) {
	case "PLAIN":
		if initial == "" {
			initial = c.ask("")
		}
		parts := strings.Split(decode(initial), "\x00")
		if len(parts) == 3 {
			user, password = parts[1], parts[2]
		}
	case "LOGIN":
		user, password = decode(c.ask("User Name\x00")), decode(c.ask("Password\x00"))
	}
	o := c.server.options
	if !slices.Contains(c.mechanisms(), mechanism) || user != o.Username || password != o.Password {
		return c.answer(command, "535 5.7.8 wrong", nil)
	}
	return c.answer(command, "235 2.7.0 welcome", func() { c.user = user })
}

func (c *session) ask(question string) string {
	if !c.write("334 " + base64.StdEncoding.EncodeToString([]byte(question))) {
		return ""
	}
	line, _ := c.text.ReadLine()
	return line
}

func decode(text string) string {
	plain, _ := base64.StdEncoding.DecodeString(text)
	return string(plain)
}

func (c *session) reset() { c.begun, c.from, c.to = false, "", "" }

func (c *session) mail(command Command) bool {
	c.mails++
	o := c.server.options
	switch {
	case o.StartTLS && !c.secure:
		return c.answer(command, "530 5.7.0 STARTTLS first", nil)
	case o.Username != "" && c.user == "":
		return c.answer(command, "530 5.7.0 log in first", nil)
	case c.begun:
		return c.answer(command, "503 5.5.1 a transaction is under way", nil)
	}
	return c.answer(command, "250 2.1.0 fine", func() { c.begun, c.from = true, path(command.Argument) })
}

func (c *session) rcpt(command Command) bool {
	c.to = path(command.Argument)
	if !c.begun {
		return c.answer(command, "503 5.5.1 MAIL first", nil)
	}
	taken := false
	ok := c.answer(command, "250 2.1.5 fine", func() { taken = true })
	if !taken {
		c.to = ""
	}
	return ok
}

func (c *session) data(command Command) bool {
	if c.to == "" {
		return c.answer(command, "503 5.5.1 RCPT first", nil)
	}
	begins := false
	if alive := c.answer(command, ready, func() { begins = true }); !alive || !begins {
		return alive
	}
	switch fault := c.faultOf(Command{Verb: "BODY"}); {
	case fault.Hang:
		<-c.server.stop
		return false
	case fault.Cut:
		_, _ = c.text.ReadLine()
		return false
	}
	data, err := readData(c.text.R)
	if err != nil {
		return false
	}
	m := Mail{From: c.from, To: c.to, Data: data, Session: c.number, User: c.user, TLS: c.secure}
	return c.finish(m)
}

// finish keeps the message before it answers.
func (c *session) finish(m Mail) bool {
	fault := c.faultOf(Command{Verb: "DOT"})
	if fault == (Fault{Delay: fault.Delay}) || fault.Accept || strings.HasPrefix(fault.Reply, "2") {
		c.server.keep(m)
	}
	c.reset()
	switch {
	case fault.Hang:
		<-c.server.stop
		return false
	case fault.Reply != "":
		return c.write(fault.Reply) && !fault.Cut
	case fault.Cut:
		return false
	}
	return c.write("250 2.0.0 kept")
}

// path is what stands between < and >.
func path(argument string) string {
	_, rest, _ := strings.Cut(argument, "<")
	end := strings.LastIndexByte(rest, '>')
	if end < 0 {
		return ""
	}
	return rest[:end]
}
