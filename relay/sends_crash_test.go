package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/config"
	"pgrelay/internal/pgtest"
)

// wires are the connections of one relay, which the test may cut.
type wires struct {
	dead atomic.Bool // of all: nothing goes out, nothing comes in
	// sent hears what a session sends and returns what becomes of it; answered hears of an answer before the session does.
	mu       sync.Mutex
	sent     func(session, text string) wireEnd
	answered func(session string)
}

// wireEnd is what becomes of what a session sends.
type wireEnd int

const (
	wireGoes  wireEnd = iota
	wireStops         // it never leaves, and the connection is gone
	wireMute          // the server gets it, and the connection is gone before the answer
)

// wire is one connection.
type wire struct {
	net.Conn
	all     *wires
	session string
	mute    atomic.Bool // pgx reads elsewhere while a write takes long
}

var errCut = errors.New("the test has cut the connection")

func (ws *wires) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if ws.dead.Load() {
		return nil, errCut
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, all: ws}, nil
}

func (w *wire) Write(b []byte) (int, error) {
	for _, name := range []string{"leader", "stamp", "sends"} {
		if w.session == "" && bytes.Contains(b, []byte("application_name\x00pgrelay "+name+"\x00")) {
			w.session = name
		}
	}
	w.all.mu.Lock()
	sent := w.all.sent
	w.all.mu.Unlock()
	end := wireGoes
	if sent != nil && w.session != "" {
		end = sent(w.session, string(b))
	}
	if end == wireStops || w.all.dead.Load() {
		_ = w.Close()
		return 0, errCut
	}
	w.mute.Store(end == wireMute)
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.all.mu.Lock()
	answered := w.all.answered
	w.all.mu.Unlock()
	if answered != nil && w.session != "" {
		answered(w.session)
	}
	if w.mute.Load() || w.all.dead.Load() {
		_ = w.Close()
		return 0, errCut
	}
	return n, err
}

// wired gives the relay that was built last connections that the test may cut.
func (f *fixture) wired() *wires {
	ws := &wires{}
	f.relay.cfg.Conn.DialFunc = ws.dial
	return ws
}

// onceAnswered does something when the session of sends gets its next answer, which it does not see before that is done.
func (ws *wires) onceAnswered(do func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.answered = func(session string) {
		if session == "sends" {
			do()
		}
	}
}

// die cuts all connections.
func (ws *wires) die() { ws.dead.Store(true) }

func commits(text string) bool {
	return strings.HasPrefix(text, "Q") && strings.HasSuffix(text, "commit\x00")
}

func TestLostReplyOfAClaimIsNeitherASecondSendNorADoubt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  wireEnd
		cuts func(text string) bool
	}{
		"to its commit, which was one":       {wireMute, commits},
		"to its commit, which never arrived": {wireStops, commits},
		"to the claim itself":                {wireMute, func(text string) bool { return strings.Contains(text, "INSERT INTO pgrelay.notification_sends") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, toMail)
			ws := f.wired()
			var cuts atomic.Int32
			ws.sent = func(session, text string) wireEnd {
				if session == "sends" && test.cuts(text) && cuts.Add(1)%4 == 1 {
					return test.end
				}
				return wireGoes
			}
			f.start()
			ids := f.ids(insertMail, `["ann@x", "bob@x"]`, 10)
			for _, id := range ids {
				require.Equal(t, "PUBLISHED", f.ends(id))
			}
			require.Positive(t, cuts.Load())
			require.Len(t, f.sent("mail"), 20)
			require.Len(t, f.pubs["mail"].messages(), 20)
			require.Equal(t, "0 20", f.one(`SELECT count(*) FILTER (WHERE sent_at IS NULL) || ' ' || count(*) FROM pgrelay.notification_sends`))
			require.Equal(t, "0", f.one(`SELECT count(*)::text FROM pgrelay.failures`))
			require.NoError(t, f.stop())
		})
	}
}

func TestLostReplyToSentAtIsWrittenAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, toMail)
	ws := f.wired()
	var commit atomic.Int32
	ws.sent = func(session, text string) wireEnd {
		if session == "sends" && commits(text) && commit.Add(1) == 2 {
			return wireStops
		}
		return wireGoes
	}
	f.start()
	id := f.one(insertMail, `["ann@x"]`, 1)
	require.Equal(t, "PUBLISHED", f.ends(id))
	require.Equal(t, "ann@x sent", f.sends(id), "before the row was stamped")
	require.Len(t, f.pubs["mail"].messages(), 1)
}

// TestCrashAtEachStep kills a relay at each step of the second of three recipients, and has another go on.
func TestCrashAtEachStep(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dies func(ws *wires, bob *atomic.Bool)
		fate string
		sent int // mails to bob
	}{
		"before the claim": {func(ws *wires, _ *atomic.Bool) {
			ws.sent = func(session, text string) wireEnd {
				if session == "sends" && strings.Contains(text, "bob@x") {
					ws.die()
				}
				return wireGoes
			}
		}, "PUBLISHED", 1},
		"after the claim": {func(ws *wires, _ *atomic.Bool) {
			var bob bool
			ws.sent = func(session, text string) wireEnd {
				if session != "sends" { // the others have goroutines of their own
					return wireGoes
				}
				bob = bob || strings.Contains(text, "bob@x")
				if bob && commits(text) {
					ws.onceAnswered(ws.die)
				}
				return wireGoes
			}
		}, "UNCERTAIN", 0},
		"after the send": {func(ws *wires, bob *atomic.Bool) {
			ws.sent = func(session, _ string) wireEnd {
				if bob.Load() {
					ws.die()
				}
				return wireGoes
			}
		}, "UNCERTAIN", 1},
		"after sent_at": {func(ws *wires, bob *atomic.Bool) {
			ws.sent = func(session, text string) wireEnd {
				if session == "sends" && bob.Load() && commits(text) {
					ws.onceAnswered(ws.die)
				}
				return wireGoes
			}
		}, "PUBLISHED", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, toMail)
			ws := f.wired()
			var bob atomic.Bool
			f.pubs["mail"].script(func(m *Message) Result {
				if m.Recipient == "bob@x" {
					bob.Store(true)
				}
				return result(OutcomeDelivered)
			})
			test.dies(ws, &bob)
			f.relay.cfg.Limits.ShutdownTimeout = config.Duration(time.Second) // it can do nothing then
			f.start()
			defer f.stop() //nolint:errcheck // it is as good as dead
			id := f.one(insertMail, `["ann@x", "bob@x", "cid@x"]`, 1)
			f.offer(id)
			pgtest.Eventually(t, longEnough, func() error {
				if !ws.dead.Load() {
					return errors.New("alive")
				}
				return nil
			}, "the relay dies")
			f.build(toMail)
			f.start()
			require.Equal(t, test.fate, strings.Fields(f.ends(id))[0])
			sent := f.sent("mail")
			event := f.one(`SELECT event_id::text FROM pgrelay.outbox_events`)
			require.Equal(t, []int{1, test.sent, 1}, []int{sent[event+" ann@x"], sent[event+" bob@x"], sent[event+" cid@x"]}, "one each at most")
			require.Equal(t, test.fate == "UNCERTAIN", f.listed(true) == "bob@x uncertain pgrelay.outbox_events "+id, f.listed(true))
		})
	}
}

// TestLeaderThatWasFrozenSendsNothingTwice has another instance lead while a call of the first one is under way, or its claim has just been
// committed.
func TestLeaderThatWasFrozenSendsNothingTwice(t *testing.T) {
	t.Parallel()
	for name, sends := range map[string]bool{"on the wire": true, "claimed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, toMail)
			ws := f.wired()
			thaw, frozen := make(chan struct{}), make(chan struct{})
			freeze := sync.OnceFunc(func() { close(frozen); <-thaw })
			first := f.relay
			if sends {
				f.pubs["mail"].script(func(*Message) Result { freeze(); return result(OutcomeDelivered) })
			} else {
				ws.sent = func(session, text string) wireEnd {
					if session == "sends" && commits(text) {
						ws.onceAnswered(freeze)
					}
					return wireGoes
				}
			}
			f.start()
			stop := f.stop
			id := f.one(insertMail, `["ann@x"]`, 1)
			f.offer(id)
			<-frozen
			cutLead(ws)
			if sends { // one recorder serves both
				f.pubs["mail"] = newRecorder(false)
			}
			f.build(toMail)
			f.start()
			require.Equal(t, "UNCERTAIN", strings.Fields(f.ends(id))[0])
			pgtest.Eventually(t, longEnough, func() bool { return !first.Leads() }, "the first one knows, or has been silent for too long")
			close(thaw)
			pgtest.Eventually(t, longEnough, func() error {
				if rows, _ := first.flights.inFlight(); rows > 0 {
					return fmt.Errorf("%d rows in flight", rows)
				}
				return nil
			}, "the first one lets go")
			require.Contains(t, f.fate(id), "UNCERTAIN")
			require.Empty(t, f.pubs["mail"].messages(), "the second one sends nothing")
			require.Equal(t, sends, strings.Contains(f.sends(id), "ann@x sent"), "who sent it says so, whoever leads")
			require.NotEmpty(t, f.sends(id), "and what was not sent is not released any more: another has judged by it")
			require.NoError(t, stop())
		})
	}
}

// cutLead ends a relay's leader session, as the server ends that of a frozen process, and keeps it from leading again; the others work.
func cutLead(ws *wires) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	before := ws.sent
	ws.sent = func(session, text string) wireEnd {
		if session == "leader" {
			return wireStops
		}
		if before != nil {
			return before(session, text)
		}
		return wireGoes
	}
}
