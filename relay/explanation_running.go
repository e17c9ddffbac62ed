package relay

import "fmt"

// destination says what is known of the row's destination, and whether it is paused.
func (x *explaining) destination() (string, bool) {
	if x.Running == nil || x.Running.Instance != x.leads() {
		return fmt.Sprintf("look at the leader's log and its /metrics, whether pgrelay_destination_paused{destination=%q} is 1.", x.out.Destination), false
	}
	for _, d := range x.Running.Destinations {
		switch {
		case d.Name != x.out.Destination:
		case d.Paused:
			return fmt.Sprintf("Destination %s is paused for %s: %s. It is tried again in %s, and the row goes when something gets through.",
				d.Name, seconds(d.PausedSeconds), sentence(d.Reason, d.Detail), seconds(d.ProbeSeconds)), true
		default:
			return fmt.Sprintf("look for its id in the leader's log; destination %s takes messages and has %d rows waiting and %d on their way.",
				d.Name, d.Waiting, d.InFlight), false
		}
	}
	return "the leader does not know destination " + x.out.Destination + ": it runs with another configuration.", false
}

func (x *explaining) problem() string { return x.outbox().Problem }

// outbox is what the relay that leads says of the row's outbox, empty if it was not asked.
func (x *explaining) outbox() (o OutboxState) {
	if x.Running == nil || x.Running.Instance != x.leads() {
		return o
	}
	for _, o := range x.Running.Outboxes {
		if o.Table == x.table.Name {
			return o
		}
	}
	return o
}

// barred is the row's route if that is paused.
func (x *explaining) barred() *RouteState {
	for _, r := range x.outbox().Paused {
		if x.Route >= noRoute && r.Route == x.table.RouteName(x.Route) {
			return &r
		}
	}
	return nil
}
