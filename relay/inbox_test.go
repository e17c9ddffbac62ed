package relay

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestInboxHoldsEachIDOnceAndLosesNone(t *testing.T) {
	t.Parallel()
	table := &Table{Name: "t"}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		signals := 0
		b := newInbox(1000, func() { signals++ })
		held := map[string]want{} // pulled and not given back
		known := map[string]bool{}
		take := func(wants []want) {
			for _, w := range wants {
				if _, twice := held[w.id]; twice {
					t.Fatalf("%s was pulled twice", w.id)
				}
				held[w.id] = w
			}
		}
		some := func() (want, bool) {
			ids := make([]string, 0, len(held))
			for id := range held {
				ids = append(ids, id)
			}
			if len(ids) == 0 {
				return want{}, false
			}
			slices.Sort(ids)
			return held[rapid.SampledFrom(ids).Draw(t, "id")], true
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				id := strconv.Itoa(rapid.IntRange(1, 30).Draw(t, "id"))
				if _, out := held[id]; out {
					return // in flight: split keeps these away
				}
				before := signals
				require.Empty(t, b.push(want{id: id, source: sourcePoller}))
				require.Greater(t, signals, before)
				known[id] = true
			},
			"pull": func(t *rapid.T) { take(b.pull(rapid.IntRange(1, 10).Draw(t, "n"), now)) },
			"park": func(t *rapid.T) {
				w, ok := some()
				if !ok {
					return
				}
				delete(held, w.id)
				w.wait = time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond
				var line *lineKey
				if k := rapid.IntRange(0, 2).Draw(t, "line"); k > 0 {
					line = &lineKey{table: table, key: strconv.Itoa(k)}
				}
				b.park(w, now, line)
			},
			"requeue": func(t *rapid.T) {
				if w, ok := some(); ok {
					delete(held, w.id)
					require.Empty(t, b.push(w))
				}
			},
			"settle": func(t *rapid.T) {
				if w, ok := some(); ok {
					delete(held, w.id)
					delete(known, w.id)
				}
			},
			"wake": func(t *rapid.T) {
				b.wake(lineKey{table: table, key: strconv.Itoa(rapid.IntRange(1, 2).Draw(t, "line"))}, rapid.IntRange(1, 5).Draw(t, "n"))
			},
			"time": func(t *rapid.T) {
				b.next(now) // as the claimer asks after a round
				now = now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) { require.Equal(t, len(known), len(held)+b.size(), "ids known and ids kept") },
		})
		for range 100 { // everything comes in the end
			now = now.Add(time.Second)
			take(b.pull(1000, now))
		}
		require.Zero(t, b.size())
		require.Len(t, held, len(known))
	})
}

func TestParkedIDWhoseTimeHasComeIsReportedOnce(t *testing.T) {
	t.Parallel()
	b := newInbox(10, func() {})
	now := time.Unix(0, 0)
	b.park(want{id: "1", wait: time.Second}, now, nil)
	require.Equal(t, now.Add(time.Second), b.next(now))
	require.True(t, b.next(now.Add(time.Second)).IsZero(), "it is queued now, and whoever keeps it from being pulled signals")
	require.Len(t, b.pull(1, now.Add(time.Second)), 1)
}

func TestLineGivesItsFirstIDsFirstHoweverTheyCame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newParking(1000)
		line := lineKey{key: "k"}
		ids := rapid.SliceOfNDistinct(rapid.IntRange(-1000, 1000), 1, 50, rapid.ID[int]).Draw(t, "ids")
		for _, n := range ids {
			p.add(want{id: strconv.Itoa(n)}, time.Time{}, &line)
		}
		slices.Sort(ids)
		for len(ids) > 0 {
			n := rapid.IntRange(1, 10).Draw(t, "n")
			for _, w := range p.takeLine(line, n) {
				require.Equal(t, strconv.Itoa(ids[0]), w.id)
				ids = ids[1:]
			}
		}
		require.Zero(t, p.len())
		require.Empty(t, p.times)
	})
}

func TestHotLineKeepsItsFirstIDsAndSaysWhenItIsDry(t *testing.T) {
	t.Parallel()
	p := newParking(10_000)
	hot, other := lineKey{key: "hot"}, lineKey{key: "other"}
	for n := 3 * lineKept; n > 0; n-- { // the last ones come first
		p.add(want{id: strconv.Itoa(n)}, time.Time{}, &hot)
	}
	p.add(want{id: "other"}, time.Time{}, &other)
	require.Equal(t, lineKept+1, p.len())
	for n := 0; n < lineKept; n += lineRun {
		require.Empty(t, p.takeDry())
		for i, w := range p.takeLine(hot, lineRun) {
			require.Equal(t, strconv.Itoa(n+i+1), w.id)
			require.False(t, p.has(w.id))
		}
	}
	require.Equal(t, []lineKey{hot}, p.takeDry())
	p.takeLine(other, 1)
	require.Empty(t, p.takeDry(), "nothing of the other line was let go")
}

func TestLineWhoseFirstIDsWereLetGoIsAskedFor(t *testing.T) {
	t.Parallel()
	p := newParking(10_000)
	hot, now := lineKey{key: "hot"}, time.Unix(0, 0)
	park := func(from, to int) {
		for n := from; n <= to; n++ {
			p.add(want{id: strconv.Itoa(n)}, now.Add(time.Second), &hot)
		}
	}
	park(1, 2*lineKept) // the second half is let go
	p.takeLine(hot, lineKept/2)
	park(2*lineKept+1, 3*lineKept) // these find room, though others stand before them
	p.takeLine(hot, lineKept/2)
	require.Empty(t, p.takeDry(), "there are more")
	require.NotEmpty(t, p.takeDue(now.Add(time.Second)), "none of which can go")
	require.Equal(t, []lineKey{hot}, p.takeDry())
	require.NotEmpty(t, p.takeDue(now.Add(time.Hour)))
	require.Empty(t, p.takeDry(), "it is asked for once, until the answer says that there are more")

	p.more[hot] = true
	p.takeLine(hot, p.len())
	require.Equal(t, []lineKey{hot}, p.takeDry())
	p.more[hot] = true
	require.Empty(t, p.takeLine(hot, 1))
	require.Equal(t, []lineKey{hot}, p.takeDry(), "also of a line of which nothing is kept")
}

func TestParkedIDsLeaveHalfOfTheInboxToThoseThatMayGo(t *testing.T) {
	t.Parallel()
	b := newInbox(100, func() {})
	for n := range 300 {
		b.park(want{id: strconv.Itoa(n), wait: time.Hour}, time.Unix(0, 0), &lineKey{key: strconv.Itoa(n)})
	}
	require.Equal(t, 50, b.size())
	for n := range 50 {
		require.Empty(t, b.push(want{id: "free" + strconv.Itoa(n)}))
	}
	require.Len(t, b.push(want{id: "one too many"}), 1)
}

func TestFullLineMakesRoomForAnEarlierID(t *testing.T) {
	t.Parallel()
	p := newParking(4)
	line := lineKey{key: "k"}
	for _, id := range []string{"5", "6", "7", "8", "1"} {
		p.add(want{id: id}, time.Time{}, &line)
	}
	require.Equal(t, 4, p.len())
	require.Equal(t, "1", p.takeLine(line, 1)[0].id)
	require.False(t, p.has("8"))
}

func TestOfferWaitsForRoomAndNoLongerThanAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &Table{Name: "t"}
		o := &outbox{table: table, inbox: newInbox(2, func() {})}
		r := &Relay{outboxOf: map[*Table]*outbox{table: o}}
		began := time.Now()
		require.ErrorIs(t, r.Offer(t.Context(), table, []string{"1", "2", "3"}), ErrNoRoom)
		require.Equal(t, offerMost, time.Since(began))

		done := make(chan error)
		go func() { done <- r.Offer(t.Context(), table, []string{"3", "4"}) }()
		synctest.Wait()
		require.Len(t, o.inbox.pull(2, time.Now()), 2)
		require.NoError(t, <-done)

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(context.Canceled)
		require.ErrorIs(t, r.Offer(ctx, table, []string{"5"}), context.Canceled)
	})
}
