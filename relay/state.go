package relay

import (
	"cmp"
	"time"
)

// State is what a running relay knows of itself and no table tells. It holds no secret and nothing of a payload.
type State struct {
	Instance     string             `json:"instance"`
	Leads        bool               `json:"leads"`
	Destinations []DestinationState `json:"destinations"`
	Outboxes     []OutboxState      `json:"outboxes"`
}

// DestinationState is one destination. Times are durations, so that nobody's clock matters.
type DestinationState struct {
	Name          string  `json:"name"`
	Paused        bool    `json:"paused"`
	Reason        string  `json:"reason,omitempty"`
	Detail        string  `json:"detail,omitempty"`
	PausedSeconds float64 `json:"paused_seconds,omitempty"`
	ProbeSeconds  float64 `json:"probe_seconds,omitempty"` // until it is tried again
	Waiting       int     `json:"waiting"`                 // rows that were claimed for it and not sent yet
	InFlight      int     `json:"in_flight"`               // rows on their way
}

// OutboxState is one outbox.
type OutboxState struct {
	Table string `json:"table"`
	// Problem is why it is left alone for a while: its table refuses the relay's statement. Empty if it isn't.
	Problem string `json:"problem,omitempty"`
	// Paused are the routes whose rows all die alike.
	Paused []RouteState `json:"paused_routes,omitempty"`
}

// State looks at the relay as it is now.
func (r *Relay) State() State {
	s := State{Instance: r.instance.String(), Leads: r.Leads(), Destinations: []DestinationState{}, Outboxes: []OutboxState{}}
	for _, d := range r.destinations {
		state := d.state()
		one := DestinationState{Name: d.cfg.name, Paused: state.paused, Waiting: state.waiting, InFlight: state.inFlight}
		if state.paused {
			one.Reason, one.Detail = state.reason, state.detail
			one.ProbeSeconds = max(0, time.Until(state.until).Seconds())
			if !state.since.IsZero() {
				one.PausedSeconds = time.Since(state.since).Seconds()
			}
		}
		s.Destinations = append(s.Destinations, one)
	}
	for _, o := range r.outboxes {
		one := OutboxState{Table: o.table.Name, Paused: r.guard.state(time.Now(), o.table)}
		if problem := cmp.Or(o.quiet.problem(), o.hush.problem()); problem != nil {
			one.Problem = problem.Error()
		}
		s.Outboxes = append(s.Outboxes, one)
	}
	return s
}
