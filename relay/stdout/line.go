package stdout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"pgrelay/relay"
)

// line is one message as it is written.
type line struct {
	EventID    string            `json:"event_id"`
	Kind       string            `json:"kind"`
	Table      string            `json:"table"`
	ID         string            `json:"id"`
	Group      string            `json:"group,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Body is a string even if it is JSON: only so do its spaces and digits survive any reader.
	Body string `json:"body"`
}

// encode gives the lines and where each ends.
func encode(batch []*relay.Message) (text []byte, ends []int) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for _, m := range batch {
		l := line{EventID: m.EventID, Kind: m.Kind, Table: m.Table, ID: m.RowID, Group: m.Group, Body: m.Body}
		if len(m.Attributes) > 0 {
			l.Attributes = make(map[string]string, len(m.Attributes))
		}
		for _, a := range m.Attributes {
			l.Attributes[a.Name] = a.Value
		}
		if err := enc.Encode(l); err != nil {
			panic(err) // strings and a map of strings always encode, and a buffer takes them
		}
		ends = append(ends, buf.Len())
	}
	return buf.Bytes(), ends
}

// written is what became of one write.
type written struct {
	bytes int
	err   error
}

// results: lines that are out whole are delivered, the one that was cut is unknown,
// the rest go back.
func (w written) results(ends []int) ([]relay.Result, *relay.Fault) {
	var fault *relay.Fault
	if w.err != nil {
		fault = &relay.Fault{Reason: "write_failed", Detail: "the output takes no more: " + w.err.Error(), Err: w.err}
	}
	results := make([]relay.Result, len(ends))
	begin := 0
	for i, end := range ends {
		switch {
		case w.bytes >= end:
			results[i].Outcome = relay.OutcomeDelivered
		case w.bytes > begin:
			results[i] = relay.Result{Outcome: relay.OutcomeUnknown, Reason: "cut_off", Detail: "the line was written in part"}
		default:
			results[i] = backFor(fault)
		}
		begin = end
	}
	return results, fault
}

// cutOff is for a write that had not returned when its call ended.
func cutOff(ctx context.Context, n int) []relay.Result {
	r := relay.Result{Outcome: relay.OutcomeUnknown, Reason: "canceled", Detail: "the call was cut off during the write"}
	if errors.Is(context.Cause(ctx), errDeadline) {
		r.Reason, r.Detail = "timeout", "the write did not end in time: nobody reads the output"
	}
	results := make([]relay.Result, n)
	for i := range results {
		results[i] = r
	}
	return results
}

func back(batch []*relay.Message, fault *relay.Fault) ([]relay.Result, *relay.Fault) {
	results := make([]relay.Result, len(batch))
	for i := range results {
		results[i] = backFor(fault)
	}
	return results, fault
}

func backFor(fault *relay.Fault) relay.Result {
	if fault == nil {
		return relay.Result{Outcome: relay.OutcomeBack, Reason: "not_sent", Detail: "the call ended before it was written"}
	}
	return relay.Result{Outcome: relay.OutcomeBack, Reason: fault.Reason, Detail: fault.Detail}
}
