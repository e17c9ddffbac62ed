package relay

import (
	"slices"
	"time"
)

// Rooms says, for a look at a table, how many rows each destination would take, and behind the destinations which of its routes are
// paused; 0 leaves a destination's or a route's rows out, and the relay asks for a look when that changes.
func (r *Relay) Rooms(t *Table) []int32 {
	rooms := r.roomsOf(t, nil)
	for _, route := range r.guard.wanting(t) {
		if at := t.routeRoom(route); at < len(rooms) {
			rooms[at] = 1
		}
	}
	for _, sink := range t.sinks {
		if rooms[sink] == 0 && !r.holds[sink].full() && !r.destinations[sink].state().paused {
			rooms[sink] = 1 // busy: a few more can be held back
		}
		if rooms[sink] == 0 {
			r.holds[sink].miss(r.outboxOf[t])
			if r.destinations[sink].room() > 0 {
				r.opened(sink) // it opened meanwhile
			}
		}
	}
	return rooms
}

func (r *Relay) rooms() []int32 {
	rooms := make([]int32, len(r.destinations))
	for i, d := range r.destinations {
		rooms[i] = int32(d.room())
	}
	return rooms
}

// roomsOf are the rooms of the destinations and, behind them, those of the table's routes, of which one may be open for a try.
func (r *Relay) roomsOf(t *Table, trying *routeOf) []int32 {
	rooms := r.rooms()
	for route, paused := range r.guard.paused(t, trying) {
		if route == 0 {
			rooms = append(rooms, slices.Repeat([]int32{1}, 1+len(t.sinks))...)
		}
		if paused {
			rooms[t.routeRoom(route-1)] = 0
		}
	}
	return rooms
}

// routeRoom is where a route's room is, behind those of the destinations: 0 while it is paused.
func (t *Table) routeRoom(route int) int { return t.destinations + 1 + route }

// open says whether any destination of the table would take a row.
func (r *Relay) open(t *Table) bool {
	return slices.ContainsFunc(t.sinks, func(sink int) bool { return r.destinations[sink].room() > 0 })
}

// close holds back an id for whose destination there is no room now.
func (r *Relay) close(o *outbox, sink int, w want) {
	r.holds[sink].keep(o, w)
	if r.destinations[sink].room() > 0 {
		r.opened(sink) // it opened meanwhile
	}
}

// opened asks for what a destination had no room for.
func (r *Relay) opened(sink int) {
	ids, missed := r.holds[sink].take()
	for _, held := range ids {
		held.table.requeue([]want{held.want})
	}
	for _, o := range missed {
		r.looker.Look(o.table, sink)
	}
	signal(r.work)
}

// settle takes the verdicts of the publish stage.
func (r *Relay) settle(ds []*delivery) {
	r.guard.judge(time.Now(), ds)
	r.stamper.settle(ds)
}

// probeEvery is how often a row of a paused route is tried: as often as a row of its paused destination at least is.
func (r *Relay) probeEvery(t *Table, route int) (every time.Duration) {
	for i, sink := range t.sinks {
		if route == i || route == noRoute {
			every = max(every, time.Duration(r.cfg.Destinations[sink].Config.Pause.Max))
		}
	}
	return every
}

// routeChanged hears that a route was paused or resumed.
func (r *Relay) routeChanged(t *Table, route int, paused bool) {
	r.metrics.routes.WithLabelValues(t.Name, t.RouteName(route)).Set(boolGauge(paused))
	if !paused {
		r.looker.Look(t, -1)
	}
	signal(r.work)
}
