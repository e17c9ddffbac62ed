package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// plan is what happens to some rows: which lines they are in, how calls end and when
// the lead is lost. Everything is drawn beforehand, so that a failure can be shrunk.
type plan struct {
	lines       []string // of each row
	outcomes    []int    // of each message in turn; more than these are delivered
	faults      []bool   // of each call in turn
	delays      []int    // of each call, in ms
	aborts      []bool   // of each claim in turn
	concurrency int
	messages    int
	linger      time.Duration
}

func drawPlan(t *rapid.T) plan {
	return plan{
		lines:       rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 60).Draw(t, "lines"),
		outcomes:    rapid.SliceOfN(rapid.IntRange(0, int(OutcomeBack)), 0, 40).Draw(t, "outcomes"),
		faults:      rapid.SliceOfN(rapid.Bool(), 0, 10).Draw(t, "faults"),
		delays:      rapid.SliceOfN(rapid.IntRange(0, 50), 1, 8).Draw(t, "delays"),
		aborts:      rapid.SliceOfN(rapid.Bool(), 0, 8).Draw(t, "aborts"),
		concurrency: rapid.IntRange(1, 6).Draw(t, "concurrency"),
		messages:    rapid.IntRange(1, 5).Draw(t, "messages"),
		linger:      rapid.SampledFrom([]time.Duration{0, 0, 20 * time.Millisecond}).Draw(t, "linger"),
	}
}

// witness answers calls by the plan and checks what the destination may not do.
type witness struct {
	plan

	mu        sync.Mutex
	rows      map[string]*delivery
	flying    map[string]bool // lines
	delivered map[string][]string
	wrong     error
	sent      int // messages
	calls     int
}

func (w *witness) publish(_ context.Context, batch []*Message) ([]Result, *Fault) {
	w.mu.Lock()
	call := w.calls
	w.calls++
	results := make([]Result, len(batch))
	fault := (*Fault)(nil)
	if call < len(w.faults) && w.faults[call] {
		fault = &Fault{Reason: "unreachable"}
	}
	for i, m := range batch {
		line := w.rows[m.RowID].line
		if w.flying[line] {
			w.wrong = fmt.Errorf("row %s was sent while its line %s was in flight", m.RowID, line)
		}
		w.flying[line] = line != ""
		results[i].Outcome = OutcomeDelivered
		if w.sent < len(w.outcomes) {
			results[i].Outcome = Outcome(w.outcomes[w.sent])
		}
		if fault != nil {
			results[i].Outcome = OutcomeBack
		}
		w.sent++
	}
	w.mu.Unlock()

	<-time.After(time.Duration(w.delays[call%len(w.delays)]) * time.Millisecond)

	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range batch {
		line := w.rows[m.RowID].line
		w.flying[line] = false
		if results[i].Outcome == OutcomeDelivered {
			w.delivered[line] = append(w.delivered[line], m.RowID)
		}
	}
	return results, fault
}

// outboxModel is the rest of the relay: it claims rows in order, none behind an unsettled
// one of its line that it does not claim as well.
type outboxModel struct {
	*stage
	pending []*delivery // in order
	held    map[*delivery]bool
}

// claim takes what there is room for.
func (c *outboxModel) claim() []*delivery {
	var taken []*delivery
	blocked := map[string]bool{}
	for d := range c.held {
		blocked[d.line] = d.line != ""
	}
	for _, d := range c.pending {
		switch {
		case c.held[d] || blocked[d.line]:
		case len(taken) >= c.room():
			blocked[d.line] = d.line != ""
		default:
			taken = append(taken, d)
		}
	}
	for _, d := range taken {
		c.held[d] = true
	}
	return taken
}

// stamp takes note of what was settled, and says what is wrong with it.
func (c *outboxModel) stamp() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.settled {
		if !c.held[d] {
			return fmt.Errorf("row %s was settled twice", d.row.ID)
		}
		delete(c.held, d)
		switch d.verdict.kind {
		case verdictDelivered, verdictDead:
			c.pending = slices.DeleteFunc(c.pending, func(o *delivery) bool { return o == d })
		case verdictRetry:
			d.row.Attempts++
		case verdictUnknown:
			d.row.Unknowns++
		}
	}
	c.settled = nil
	return nil
}

// relayAll plays a plan to its end.
func relayAll(t *testing.T, p plan) error {
	w := &witness{plan: p, rows: map[string]*delivery{}, flying: map[string]bool{}, delivered: map[string][]string{}}
	pub := &fakePublisher{limits: Limits{Messages: p.messages}, answer: w.publish}
	s := begin(t, pub, func(c *destinationConfig) {
		c.concurrency, c.rows, c.linger = p.concurrency, 2*p.concurrency*p.messages, p.linger
	})
	c := &outboxModel{stage: s, held: map[*delivery]bool{}}
	for i, line := range p.lines {
		d := row(fmt.Sprintf("%03d", i), line)
		w.rows[d.row.ID] = d
		c.pending = append(c.pending, d)
	}
	for turn := 0; len(c.pending) > 0; turn++ {
		if turn > 10000 {
			return fmt.Errorf("%d rows are never settled", len(c.pending))
		}
		if taken := c.claim(); len(taken) > 0 {
			s.enqueue(taken)
		}
		if turn < len(p.aborts) && p.aborts[turn] {
			s.abort()
			s.resume()
		}
		pass(7 * time.Millisecond)
		if err := c.stamp(); err != nil {
			return err
		}
	}
	if len(c.held) > 0 || s.state().waiting > 0 || s.state().inFlight > 0 {
		return fmt.Errorf("%d rows are held at the end", len(c.held))
	}
	for line, ids := range w.delivered {
		if line != "" && !slices.IsSorted(ids) {
			return fmt.Errorf("line %s went out as %v", line, ids)
		}
	}
	return w.wrong
}

func TestLinesKeepTheirOrderAndEveryRowIsSettledOnceWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var err error
		synctest.Test(t, func(t *testing.T) { err = relayAll(t, p) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}
