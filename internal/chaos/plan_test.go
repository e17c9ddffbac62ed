package chaos_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fault is one thing that goes wrong for a while.
type fault struct {
	kind      string
	target    string
	at, lasts time.Duration
	dice      uint64 // what else there is to choose
}

// hits is all that a fault hits: a lead is torn away by way of the queues and of the link of whoever leads then.
func (f fault) hits() []string {
	if f.target == lead[0] {
		return slices.Concat(lead, queues, databaseLinks)
	}
	return []string{f.target}
}

// hitsMail says that it concerns nothing but mail.
func (f fault) hitsMail() bool {
	return slices.Contains(mailServers, f.target) || slices.Contains(mailLinks, f.target)
}

// kind is a sort of fault: what it can hit and how long it lasts.
type kind struct {
	name        string
	hits        []string
	short, long time.Duration
}

// What faults hit. No two faults hit the same thing at once.
var (
	processes     = []string{"A", "B"}
	databaseLinks = []string{"A-database", "B-database"}
	queueLinks    = []string{"A-queue", "B-queue"}
	mailLinks     = []string{"A-mail", "B-mail"}
	queues        = []string{standardQueue, fifoQueue}
	mailServers   = []string{mailServer}
	tables        = []string{ownTable, bareTable, joinedTable}
	slot          = []string{"slot"}
	server        = []string{"server"}
	lead          = []string{"lead"}
)

const ms = time.Millisecond

// kinds is the deck that a plan is dealt from, so that each comes up as often as any other.
var kinds = []kind{
	{"process killed", processes, 100 * ms, 4000 * ms},
	{"process frozen", processes, 500 * ms, 9000 * ms},
	{"process stopped", processes, 100 * ms, 2000 * ms},
	{"database link cut", databaseLinks, 100 * ms, 7000 * ms},
	{"database link half-open", databaseLinks, 500 * ms, 9000 * ms},
	{"database link slow", databaseLinks, 1000 * ms, 6000 * ms},
	{"queue link cut", queueLinks, 100 * ms, 5000 * ms},
	{"queue link half-open", queueLinks, 500 * ms, 8000 * ms},
	{"queue link slow", queueLinks, 1000 * ms, 6000 * ms},
	{"lead torn away", lead, 5500 * ms, 7500 * ms},
	{"entries refused", queues, 1000 * ms, 6000 * ms},
	{"entries refused for good", queues, 500 * ms, 2000 * ms},
	{"throttled", queues, 500 * ms, 5000 * ms},
	{"server errors", queues, 500 * ms, 5000 * ms},
	{"replies lost", queues, 500 * ms, 4000 * ms},
	{"entries omitted", queues, 1000 * ms, 5000 * ms},
	{"calls slow", queues, 1000 * ms, 8000 * ms},
	{"calls hang", queues, 500 * ms, 2000 * ms},
	{"mail link cut", mailLinks, 100 * ms, 5000 * ms},
	{"mail link half-open", mailLinks, 500 * ms, 8000 * ms},
	{"mails refused", mailServers, 1000 * ms, 6000 * ms},
	{"mails refused for good", mailServers, 500 * ms, 3000 * ms},
	{"mails cut off", mailServers, 500 * ms, 4000 * ms},
	{"mail replies lost", mailServers, 500 * ms, 2000 * ms},
	{"mails slow", mailServers, 1000 * ms, 8000 * ms},
	{"mails hang", mailServers, 500 * ms, 2000 * ms},
	{"mail server down", mailServers, 500 * ms, 5000 * ms},
	{"slot dropped", slot, 0, 0},
	{"publication dropped", slot, 0, 0},
	{"publication altered", slot, 0, 0},
	{"sessions ended", server, 0, 0},
	{"backend killed", server, 0, 0},
	{"server crashed", server, 0, 3000 * ms},
	{"server restarted", server, 0, 2000 * ms},
	{"rows locked", tables, 300 * ms, 5000 * ms},
	{"table locked", tables, 300 * ms, 4000 * ms},
	{"stamps refused", tables, 500 * ms, 5000 * ms},
}

// plan is what a seed decides.
type plan struct {
	seed   uint64
	lasts  time.Duration
	slow   bool // no regular looks: what the stream doesn't bring must be asked for
	faults []fault
}

// Storms, in which faults overlap, take turns with calms, in which one comes at a time and the recovery can be measured.
const (
	turnLasts = 40 * time.Second
	stormGap  = 1700 * ms // on average
	calmGap   = 4 * time.Second
	// finale is how long before the end the last fault comes: the slot is dropped, and nothing that happens later makes up for a
	// catch-up that was forgotten.
	finale = 5 * time.Second
)

// newPlan deals the faults. One that would hit what is still being hit goes to the next target, or back under the deck.
func newPlan(seed uint64, lasts time.Duration) plan {
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := plan{seed: seed, lasts: lasts, slow: seed%2 == 0}
	busy := map[string]time.Duration{}
	var deck []kind
	for at := time.Second; at < lasts-finale; {
		if len(deck) == 0 {
			deck = slices.Clone(kinds)
			rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		k := deck[0]
		deck = deck[1:]
		f := fault{kind: k.name, at: at, lasts: k.short + time.Duration(rnd.Int64N(int64(k.long-k.short)+1)), dice: rnd.Uint64()}
		gap := time.Duration(rnd.ExpFloat64() * float64(stormGap))
		if calm := (at/turnLasts)%2 == 1; calm {
			gap = f.lasts + calmGap
		}
		at += min(gap, 20*time.Second)
		if f.target = free(rnd, k.hits, busy, f.at); f.target == "" {
			deck = append(deck, k)
		} else if f.at+f.lasts < lasts-finale-time.Second {
			for _, t := range f.hits() {
				busy[t] = f.at + f.lasts + time.Second
			}
			p.faults = append(p.faults, f)
		}
	}
	p.faults = append(p.faults, fault{kind: "slot dropped", target: slot[0], at: lasts - finale})
	return p
}

// free is one of the targets that nothing hits at a time; empty if there is none.
func free(rnd *rand.Rand, targets []string, busy map[string]time.Duration, at time.Duration) string {
	for _, i := range rnd.Perm(len(targets)) {
		if !slices.ContainsFunc(fault{target: targets[i]}.hits(), func(t string) bool { return busy[t] > at }) {
			return targets[i]
		}
	}
	return ""
}

// missed names what was planned and never came about: the finale, and kinds of which not one did.
func (p plan) missed(all []applied) (missed []string) {
	came := map[any]bool{}
	for _, a := range all {
		came[a.fault] = a.err == nil
		came[a.kind] = came[a.kind] || a.err == nil
	}
	for i, f := range p.faults {
		if i == len(p.faults)-1 && !came[f] || !came[f.kind] {
			missed = append(missed, f.kind)
		}
	}
	slices.Sort(missed)
	return slices.Compact(missed)
}

func TestPlanMissesItsFinaleAndKindsThatNeverCameAbout(t *testing.T) {
	t.Parallel()
	first, locked, finale := fault{kind: "slot dropped"}, fault{kind: "rows locked"}, fault{kind: "slot dropped", at: time.Minute}
	p := plan{faults: []fault{first, locked, locked, finale}}
	no := errors.New("no")
	require.Empty(t, p.missed([]applied{{fault: first, err: no}, {fault: locked}, {fault: locked, err: no}, {fault: finale}}))
	require.Equal(t, []string{"slot dropped"}, p.missed([]applied{{fault: first}, {fault: locked}, {fault: finale, err: no}}))
	require.Equal(t, []string{"rows locked"}, p.missed([]applied{{fault: first}, {fault: locked, err: no}, {fault: finale}}))
	require.Equal(t, []string{"rows locked", "slot dropped"}, p.missed(nil))
}

func TestSeedDecidesThePlanAndAllKindsComeUp(t *testing.T) {
	t.Parallel()
	p := newPlan(7, 5*time.Minute)
	require.Equal(t, p, newPlan(7, 5*time.Minute))
	require.NotEqual(t, p.faults, newPlan(8, 5*time.Minute).faults)
	dealt := map[string]int{}
	for i, f := range p.faults {
		dealt[f.kind]++
		for _, g := range p.faults[:i] {
			same := slices.ContainsFunc(g.hits(), func(t string) bool { return slices.Contains(f.hits(), t) })
			require.False(t, same && g.at+g.lasts >= f.at, "%v and %v hit the same thing at once", g, f)
		}
	}
	for _, k := range kinds {
		require.NotZero(t, dealt[k.name], k.name)
	}
}
