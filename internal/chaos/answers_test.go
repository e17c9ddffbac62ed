package chaos_test

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"pgrelay/internal/sqstest"
)

// send is one message of a call as it reached the SQS.
type send struct {
	call         int
	at           time.Time
	process      string
	queue        string
	event        string // event id
	version      int
	group, dedup string
	fate         string // what went wrong with it; empty: nothing
	stored       bool   // the queue has it, or had it already
	told         bool   // its outcome was in the answer, in time
	answered     time.Time
	rejected     bool   // refused for good
	recipient    string // of what goes at most once

	// Found out in the end:
	dropped bool   // by the queue's deduplication
	claim   *entry // under which it was sent; nil if a crash of the server took that back
}

// answers is the behaviour of the SQS and of the mail server: what is wrong with each queue and with mail, and a record of what was sent.
type answers struct {
	mu     sync.Mutex
	wrong  map[string]string // kinds of faults by queue, or mailServer
	healed bool              // bad messages are taken as well
	calls  int
	sends  []*send
}

func newAnswers() *answers { return &answers{wrong: map[string]string{}} }

// set makes a queue, or the mail server, misbehave; an empty kind ends it.
func (a *answers) set(queue, kind string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong[queue] = kind
}

// heal ends everything that is wrong.
func (a *answers) heal() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.wrong)
	a.healed = true
}

// answer is the SQS's fault hook.
func (a *answers) answer(r sqstest.Request) sqstest.Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := a.wrong[r.Queue]
	if len(r.Entries) == 0 {
		kind = wrongWhenAsked(kind)
	}
	f := faultOf(kind, r.Entries)
	if f.Entries == nil {
		f.Entries = map[string]sqstest.EntryFault{}
	}
	a.calls++
	for _, e := range r.Entries {
		if !a.healed && isBad(e) && rand.IntN(3) > 0 {
			f.Entries[e.ID] = refusedForGood
		}
		one := f.Entries[e.ID]
		failed := f.Status != 0 || f.Code != ""
		s := &send{
			call: a.calls, at: time.Now(), process: r.AccessKey, queue: r.Queue, event: e.Attributes["event_id"].Value, version: version(e.Body),
			group: e.GroupID, dedup: e.DedupID, stored: !failed && !f.CutBefore && one.Code == "" && !one.Discard,
			told: !f.CutBefore && !f.CutAfter && !one.Omit && f.Delay < callTimeout/2, rejected: !failed && !f.CutBefore && one == refusedForGood,
		}
		s.answered = s.at.Add(f.Delay)
		if failed || f.CutBefore || f.CutAfter || f.Delay > 0 || one != (sqstest.EntryFault{}) {
			s.fate = cmp.Or(kind, "bad")
		}
		a.sends = append(a.sends, s)
	}
	return f
}

var refusedForGood = sqstest.EntryFault{Code: "InvalidMessageContents", SenderFault: true}

// isBad finds a message that is refused for good more often than not. Such rows block their key, or not, until a person decides.
func isBad(e sqstest.Entry) bool { return strings.Contains(e.Body, `"bad"`) }

// wrongWhenAsked is the part of the faults that hits questions as well as sends.
func wrongWhenAsked(kind string) string {
	switch kind {
	case "throttled", "server errors", "calls slow":
		return kind
	}
	return ""
}

// faultOf rolls the dice for one call.
func faultOf(kind string, entries []sqstest.Entry) sqstest.Fault {
	some := func(likely float64, fault func() sqstest.EntryFault) sqstest.Fault {
		f := sqstest.Fault{Entries: map[string]sqstest.EntryFault{}}
		for _, e := range entries {
			if rand.Float64() < likely {
				f.Entries[e.ID] = fault()
			}
		}
		return f
	}
	switch kind {
	case "entries refused":
		return some(0.3, func() sqstest.EntryFault { return sqstest.EntryFault{Code: "InternalError"} })
	case "entries refused for good":
		return some(0.05, func() sqstest.EntryFault { return refusedForGood })
	case "throttled":
		if rand.IntN(2) == 0 {
			return some(0.5, func() sqstest.EntryFault { return sqstest.EntryFault{Code: "RequestThrottled", SenderFault: true} })
		}
		return sqstest.Fault{Code: "RequestThrottled"}
	case "server errors":
		return sqstest.Fault{Status: []int{http.StatusInternalServerError, http.StatusServiceUnavailable}[rand.IntN(2)]}
	case "replies lost":
		switch rand.IntN(4) {
		case 0:
			return sqstest.Fault{CutBefore: true}
		case 1, 2:
			return sqstest.Fault{CutAfter: true}
		}
	case "entries omitted":
		return some(0.3, func() sqstest.EntryFault { return sqstest.EntryFault{Omit: true, Discard: rand.IntN(2) == 0} })
	case "calls slow":
		return sqstest.Fault{Delay: time.Duration(rand.Int64N(int64(1500 * ms)))}
	case "calls late":
		return sqstest.Fault{Delay: 1500 * ms}
	case "calls hang":
		return sqstest.Fault{Delay: callTimeout + 2*time.Second}
	}
	return sqstest.Fault{}
}

// version is the one that the writer or editor gave the row's content.
func version(body string) int {
	var content struct {
		V int `json:"v"`
	}
	_ = json.Unmarshal([]byte(body), &content) // 0 belongs to no row
	return content.V
}
