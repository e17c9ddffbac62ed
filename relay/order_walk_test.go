package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/pgtest"
)

// ordeal is a FIFO destination that ends calls by the dice, and watches what comes.
type ordeal struct {
	*recorder
	mu     sync.Mutex
	rnd    *rand.Rand
	flying map[string]bool // keys
	firsts []*Message      // in the order in which they arrived for the first time
	wrong  []string
	seen   map[string]bool // ids that arrived
}

func (o *ordeal) Publish(ctx context.Context, batch []*Message) ([]Result, *Fault) {
	results, fault, wait := o.begin(batch)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range batch {
		delete(o.flying, m.Group)
	}
	return results, fault
}

func (o *ordeal) begin(batch []*Message) (results []Result, fault *Fault, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rnd.IntN(20) == 0 {
		fault = &Fault{Reason: "unreachable"}
	}
	for _, m := range batch {
		if o.flying[m.Group] {
			o.wrong = append(o.wrong, fmt.Sprintf("row %s was sent while its key %s was in flight", m.RowID, m.Group))
		}
		o.flying[m.Group] = m.Group != ""
		outcome, arrives := o.draw()
		if fault != nil && outcome != OutcomeUnknown {
			outcome, arrives = OutcomeBack, false
		}
		results = append(results, Result{Outcome: outcome, Reason: "drawn"})
		if arrives && !o.seen[m.RowID] {
			o.seen[m.RowID] = true
			o.firsts = append(o.firsts, m)
		}
	}
	return results, fault, time.Duration(o.rnd.IntN(4)) * time.Millisecond
}

// draw gives an outcome, and whether the message arrives.
func (o *ordeal) draw() (outcome Outcome, arrives bool) {
	switch n := o.rnd.IntN(100); {
	case n < 5:
		return OutcomeUnknown, true // the reply was lost
	case n < 9:
		return OutcomeUnknown, false
	case n < 17:
		return OutcomeRetry, false
	case n < 19:
		return OutcomeRejected, false
	default:
		return OutcomeDelivered, true
	}
}

// walk is a relay with a small inbox, before an ordeal.
type walk struct {
	*fixture
	ordeal  *ordeal
	rnd     *rand.Rand
	lsn     uint64
	dropped int
}

func newWalk(t *testing.T, seed uint64) *walk {
	t.Helper()
	w := &walk{fixture: newFixture(t, toQueue), rnd: rand.New(rand.NewPCG(seed, 0))}
	w.ordeal = &ordeal{recorder: newRecorder(true), rnd: rand.New(rand.NewPCG(seed, 1)), flying: map[string]bool{}, seen: map[string]bool{}}
	w.face()
	return w
}

// face puts the instance that was built last before the ordeal.
func (w *walk) face() {
	r := w.relay
	r.cfg.Destinations[1].Publisher, r.destinations[1].cfg.pub = w.ordeal, w.ordeal
	r.outboxes[0].inbox = newInbox(40, func() { signal(r.work) })
}

// insert adds rows of some keys, one in eight deferred.
func (w *walk) insert(n int) (ids []string) {
	for range n {
		key := any(fmt.Sprint("k", w.rnd.IntN(6)))
		if w.rnd.IntN(10) == 0 {
			key = nil
		}
		ms := any(nil)
		if w.rnd.IntN(8) == 0 {
			ms = w.rnd.IntN(200)
		}
		ids = append(ids, w.one(`INSERT INTO pgrelay.outbox_events (event_type, ordering_key, payload, available_at)
			VALUES ('f', $1, '1', now() + $2::int * interval '1 ms') RETURNING id::text`, key, ms))
	}
	return ids
}

// stream brings ids, in any order; those for which there is no room are left to looks.
func (w *walk) stream(ids []string) {
	w.rnd.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		w.lsn++
		if !w.relay.Inserted("pgrelay.outbox_events", id, 1, w.lsn, time.Now()) {
			w.dropped++
		}
	}
}

// offerFound offers what looks find, as far as there is room.
func (w *walk) offerFound() {
	table := w.relay.Tables()[0]
	for _, ids := range [][]string{first(w.fixture, table.FirstLook(), w.relay.Rooms(table)), due(w.fixture, table.RetryLook()), due(w.fixture, table.DeferredLook())} {
		err := w.relay.Offer(w.t.Context(), table, ids)
		if !errors.Is(err, ErrNoRoom) {
			require.NoError(w.t, err)
		}
	}
}

// ends looks until every row is settled.
func (w *walk) ends() {
	pgtest.Eventually(w.t, longEnough, func() error {
		w.offerFound()
		if left := w.one(`SELECT (SELECT count(*) FROM pgrelay.outbox_events WHERE published_at IS NULL AND dead_at IS NULL) || ' pending, '
			|| (SELECT count(*) FROM pgrelay.claims) || ' claims'`); left != "0 pending, 0 claims" {
			return errors.New(left)
		}
		return nil
	}, "every row is settled")
}

// check holds what arrived to G1 and G3.
func (w *walk) check() {
	w.ordeal.mu.Lock()
	defer w.ordeal.mu.Unlock()
	require.Empty(w.t, w.ordeal.wrong)
	for _, id := range w.ids(`SELECT id::text FROM pgrelay.outbox_events WHERE dead_at IS NULL`) {
		require.True(w.t, w.ordeal.seen[id], "row %s is marked and never arrived", id)
	}
	require.Empty(w.t, w.ids(`SELECT id::text FROM pgrelay.outbox_events WHERE dead_at IS NOT NULL EXCEPT
		SELECT row_id FROM pgrelay.failures WHERE dead_at IS NOT NULL`), "a row died without a reason")
	free := w.ids(`SELECT id::text FROM pgrelay.outbox_events WHERE dead_at IS NOT NULL OR available_at IS NOT NULL`)
	last := map[string]int{}
	for _, m := range w.ordeal.firsts {
		if m.Group == "" || slices.Contains(free, m.RowID) {
			continue
		}
		id, err := strconv.Atoi(m.RowID)
		require.NoError(w.t, err)
		require.Greater(w.t, id, last[m.Group], "of the key %s", m.Group)
		last[m.Group] = id
	}
}

// TestKeysKeepTheirOrderWhateverHappens walks at random through refusals, lost replies, faults, ids that find no room, deferred rows and a change of
// instances. What it draws follows from the seed; what meets what, from the moment.
func TestKeysKeepTheirOrderWhateverHappens(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWalk(t, seed)
			w.stream(w.insert(60)) // nobody takes them yet
			require.Equal(t, 20, w.dropped)
			w.start()
			for step := range 8 {
				ids := w.insert(10 + w.rnd.IntN(20))
				switch w.rnd.IntN(3) {
				case 0: // left to the looks
				case 1:
					w.stream(ids[:w.rnd.IntN(len(ids))])
				case 2:
					w.stream(ids)
					w.offerFound()
				}
				if step == 4 {
					_ = w.stop() // on a busy machine the drain may be cut short, which is one more thing that happens
					w.build(toQueue)
					w.face()
					w.start()
				}
			}
			w.ends()
			w.check()
		})
	}
}
