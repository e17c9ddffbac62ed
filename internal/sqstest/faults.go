package sqstest

import (
	"context"
	"net/http"
	"time"
)

// Request is what a fault hook sees of a request before anything is done about it.
type Request struct {
	Action  string
	Queue   string // its name
	Entries []Entry
	// AccessKey is the one that the request says it is signed with; nobody checks it.
	AccessKey string
}

// Entry is one message of a send: of a batch, or the only one, without an ID, of SendMessage.
type Entry struct {
	ID, Body, GroupID, DedupID string
	Attributes                 map[string]Attribute
}

// Fault is what goes wrong with a request; the zero value is nothing.
type Fault struct {
	// Status, Code, Type and Message make an error answer for the whole request; either of
	// Status and Code asks for one. Code is in either of AWS's spellings, Type is by default
	// the __type that goes with it. A Status without Code answers without a body, as a
	// proxy would.
	Status              int
	Code, Type, Message string
	// Delay passes before the answer, after storing. It ends when the client goes or the
	// server closes.
	Delay time.Duration
	// CutBefore drops the connection before anything is stored, CutAfter after it.
	CutBefore, CutAfter bool
	// Entries goes by entry id ("" in SendMessage).
	Entries map[string]EntryFault
}

// EntryFault is what goes wrong with one message of a send.
type EntryFault struct {
	// Code refuses the entry; it isn't stored.
	Code, Message string
	SenderFault   bool
	// Omit leaves the entry out of the answer, in both lists.
	Omit bool
	// Discard answers as if the entry were stored, and doesn't store it.
	Discard bool
	// WrongMD5 stores the entry and answers with another body's MD5.
	WrongMD5 bool
}

// SetFault sets the hook that every request is put to; nil takes it away. It is called
// concurrently.
func (s *Server) SetFault(hook func(Request) Fault) {
	if hook == nil {
		s.hook.Store(nil)
		return
	}
	s.hook.Store(&hook)
}

func (s *Server) faultFor(r Request) Fault {
	if hook := s.hook.Load(); hook != nil {
		return (*hook)(r)
	}
	return Fault{}
}

// failure is the fault's answer to the whole request, if it has one.
func (f Fault) failure() *apiError {
	if f.Status == 0 && f.Code == "" {
		return nil
	}
	if f.Code == "" {
		return &apiError{status: f.Status}
	}
	e := refuse(shapeOf(f.Code), "%s", f.Message)
	if f.Status != 0 {
		e.status = f.Status
	}
	if f.Type != "" {
		e.shape = f.Type
	}
	return e
}

// pause waits for the fault's delay.
func (s *Server) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.closed:
	}
}

// cut drops the connection without an answer.
func cut() { panic(http.ErrAbortHandler) }
