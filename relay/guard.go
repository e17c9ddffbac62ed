package relay

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// guardDeaths is how many rows of a route may die in a row of one reason. That many and none delivered in between, the cause is
	// hardly the rows': a broken template, a queue of the wrong kind.
	guardDeaths = 100
	// guardKept is how many ids of a paused route are kept to be tried. Looks find more.
	guardKept = 100
	// noRoute stands for the rows that no route takes, which are guarded together.
	noRoute = -1
)

// guard pauses a route whose rows all die alike, so that a mistake costs a hundred rows and not the backlog. While it is paused its
// rows are left out of claims and looks, and one of them is tried each pause.max; when one gets through, or after a restart, it flows
// again. Safe for concurrent use.
type guard struct {
	log     zerolog.Logger
	every   func(t *Table, route int) time.Duration // between two tries
	changed func(t *Table, route int, paused bool)  // called without the lock

	mu     sync.Mutex
	routes map[routeOf]*streak
}

type routeOf struct {
	table *Table
	route int
}

// streak is what has become of a route's rows since one got through.
type streak struct {
	deaths         int
	reason, detail string // of the last

	paused  bool
	since   time.Time
	probe   time.Time // when the next row may be tried
	trying  string    // the id that is being tried, or was last
	ids     []want    // to be tried
	wanting bool      // none is left: a look has been asked for
}

func newGuard(log zerolog.Logger, every func(*Table, int) time.Duration, changed func(*Table, int, bool)) *guard {
	return &guard{log: log, every: every, changed: changed, routes: map[routeOf]*streak{}}
}

// judge takes the verdicts of rows. A row that would die while its route is paused, and is not the one that is being tried, goes back as it was.
func (g *guard) judge(now time.Time, ds []*delivery) {
	for _, d := range ds {
		if d.route < noRoute { // its join finds several rows for it, whatever its route
			continue
		}
		switch d.verdict.kind {
		case verdictDelivered:
			g.passed(now, d)
		case verdictDead, verdictDropped:
			if d.verdict.kind == verdictDropped && d.route == noRoute {
				continue // the outbox says that kinds which nobody knows are stamped
			}
			if g.spares(now, d) {
				d.verdict = verdict{kind: verdictBack}
			}
		}
	}
}

func (g *guard) passed(now time.Time, d *delivery) {
	key := routeOf{d.table, d.route}
	g.mu.Lock()
	s := g.routes[key]
	delete(g.routes, key)
	g.mu.Unlock()
	if s != nil && s.paused {
		g.log.Info().Str("outbox", d.table.Name).Str("route", d.table.RouteName(d.route)).Str("reason", s.reason).
			Stringer("paused_for", now.Sub(s.since).Round(time.Millisecond)).Msg("route resumed")
		g.changed(d.table, d.route, false)
	}
}

// spares counts a death, and says whether the row must not die.
func (g *guard) spares(now time.Time, d *delivery) bool {
	key := routeOf{d.table, d.route}
	g.mu.Lock()
	s := g.routes[key]
	if s == nil {
		s = &streak{}
		g.routes[key] = s
	}
	if s.paused && s.trying != d.row.ID {
		g.mu.Unlock()
		return true
	}
	if s.reason != d.verdict.reason && !s.paused {
		s.deaths = 0
	}
	s.deaths++
	s.reason, s.detail = d.verdict.reason, d.loggable().detail
	pauses := !s.paused && s.deaths >= guardDeaths
	if pauses {
		s.paused, s.since, s.probe = true, now, now.Add(g.every(d.table, d.route))
	}
	g.mu.Unlock()
	if pauses {
		g.log.Error().Str("outbox", d.table.Name).Str("route", d.table.RouteName(d.route)).Str("reason", d.verdict.reason).Str("detail", d.loggable().detail).
			Int("dead", guardDeaths).Msg("route paused: its rows all die alike")
		g.changed(d.table, d.route, true)
	}
	return false
}

// paused says of each route of the table, the one for rows without a route first, whether it is. nil: none is.
func (g *guard) paused(t *Table, trying *routeOf) []bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []bool
	for key, s := range g.routes {
		if key.table == t && s.paused && (trying == nil || key != *trying) {
			if all == nil {
				all = make([]bool, 1+len(t.sinks))
			}
			all[1+key.route] = true
		}
	}
	return all
}

// keep takes a row of a paused route that was not claimed. It says whether it is to be tried at once.
func (g *guard) keep(now time.Time, key routeOf, w want) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.routes[key]
	if s == nil || !s.paused {
		return false
	}
	if len(s.ids) < guardKept {
		s.ids = append(s.ids, w)
	}
	at := s.wanting
	if at {
		s.wanting, s.probe = false, now
	}
	return at
}

// due gives a row of the table that is to be tried now, or says that a look has to find one.
func (g *guard) due(now time.Time, t *Table) (key routeOf, w want, ok, look bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, s := range g.routes {
		if key.table != t || !s.paused || now.Before(s.probe) {
			continue
		}
		s.probe = now.Add(g.every(t, key.route))
		if len(s.ids) == 0 {
			s.wanting = true
			return key, want{}, false, true
		}
		w, s.ids = s.ids[0], s.ids[1:]
		s.trying = w.id
		return key, w, true, false
	}
	return routeOf{}, want{}, false, false
}

// untried says that a row could not be tried: it is settled, locked or behind its key. The next is due at once.
func (g *guard) untried(now time.Time, key routeOf) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.routes[key]; s != nil && len(s.ids) > 0 {
		s.probe = now
	}
}

// next is the earliest time at which a row is to be tried, zero if no route is paused.
func (g *guard) next() (at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.routes {
		if s.paused && (at.IsZero() || s.probe.Before(at)) {
			at = s.probe
		}
	}
	return at
}

// wanting says of which paused routes of the table looks are to find rows.
func (g *guard) wanting(t *Table) (routes []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, s := range g.routes {
		if key.table == t && s.wanting {
			routes = append(routes, key.route)
		}
	}
	return routes
}

// RouteState is a route that is paused because its rows all die alike.
type RouteState struct {
	Outbox        string  `json:"outbox"`
	Route         string  `json:"route"` // its kind as configured, or NoRoute
	Reason        string  `json:"reason"`
	Detail        string  `json:"detail,omitempty"`
	PausedSeconds float64 `json:"paused_seconds"`
	ProbeSeconds  float64 `json:"probe_seconds"` // until a row of it is tried
}

// state is the paused routes of a table.
func (g *guard) state(now time.Time, t *Table) (all []RouteState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for route := noRoute; route < len(t.sinks); route++ {
		if s := g.routes[routeOf{t, route}]; s != nil && s.paused {
			all = append(all, RouteState{
				Outbox: t.Name, Route: t.RouteName(route), Reason: s.reason, Detail: s.detail,
				PausedSeconds: now.Sub(s.since).Seconds(), ProbeSeconds: max(0, s.probe.Sub(now).Seconds()),
			})
		}
	}
	return all
}

// NoRoute names, where routes are named, the rows that no route takes.
const NoRoute = "(no route)"

// RouteName is a route's kind as configured.
func (t *Table) RouteName(route int) string {
	if route == noRoute {
		return NoRoute
	}
	return t.cfg.Routes[route].Kind
}
