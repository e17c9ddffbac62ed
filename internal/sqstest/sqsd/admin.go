package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"pgrelay/internal/sqstest"
)

// admin is the JSON interface under /_test.
type admin struct{ srv *sqstest.Server }

// faultSpec is a fault as a process asks for it.
type faultSpec struct {
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Delay   string `json:"delay"`  // as Go writes durations
	Cut     string `json:"cut"`    // "before" or "after" storing
	Queue   string `json:"queue"`  // requests to this queue only
	Action  string `json:"action"` // requests of this action only
	Times   int    `json:"times"`  // so many requests only; 0 is all
}

func (a *admin) register(mux *http.ServeMux) {
	mux.HandleFunc("POST /_test/fault", a.setFault)
	mux.HandleFunc("DELETE /_test/fault", a.clearFault)
	mux.HandleFunc("GET /_test/messages", a.messages)
}

func (a *admin) setFault(w http.ResponseWriter, r *http.Request) {
	var spec faultSpec
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	hook, problem := spec.hook()
	if problem != "" {
		http.Error(w, problem, http.StatusBadRequest)
		return
	}
	a.srv.SetFault(hook)
	w.WriteHeader(http.StatusNoContent)
}

// hook turns the fault into what the server asks at each request.
func (s faultSpec) hook() (hook func(sqstest.Request) sqstest.Fault, problem string) {
	var delay time.Duration
	if s.Delay != "" {
		var err error
		if delay, err = time.ParseDuration(s.Delay); err != nil {
			return nil, err.Error()
		}
	}
	if s.Cut != "" && s.Cut != "before" && s.Cut != "after" {
		return nil, `cut is "before" or "after"`
	}
	fault := sqstest.Fault{
		Status: s.Status, Code: s.Code, Message: s.Message, Delay: delay,
		CutBefore: s.Cut == "before", CutAfter: s.Cut == "after",
	}
	var mu sync.Mutex
	met := 0
	return func(r sqstest.Request) sqstest.Fault {
		if s.Queue != "" && s.Queue != r.Queue || s.Action != "" && s.Action != r.Action {
			return sqstest.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		if met++; s.Times > 0 && met > s.Times {
			return sqstest.Fault{}
		}
		return fault
	}, ""
}

func (a *admin) clearFault(w http.ResponseWriter, _ *http.Request) {
	a.srv.SetFault(nil)
	w.WriteHeader(http.StatusNoContent)
}

// messages writes an array of what a queue accepted. Times are RFC 3339 with nanoseconds.
func (a *admin) messages(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	queue := query.Get("queue")
	from, wait := 0, time.Duration(0)
	var err error
	if s := query.Get("from"); s != "" {
		from, err = strconv.Atoi(s)
	}
	if s := query.Get("wait"); s != "" && err == nil {
		wait, err = time.ParseDuration(s)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		a.srv.Wait(ctx, queue, from+1) //nolint:errcheck // an empty array says that nothing came
	}
	found := a.srv.MessagesFrom(queue, from)
	if found == nil {
		found = []sqstest.Message{}
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(found) //nolint:errcheck // the client went: nobody to tell
}
