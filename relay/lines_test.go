package relay

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRingIsAQueueThatCanBeEnteredAtItsHead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r ring
		var model []int
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) {
				r.push(item{bytes: next})
				model = append(model, next)
				next++
			},
			"pushFront": func(*rapid.T) {
				r.pushFront(item{bytes: next})
				model = append([]int{next}, model...)
				next++
			},
			"pop": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				require.Equal(t, model[0], r.pop().bytes)
				model = model[1:]
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model), r.len())
				for i, want := range model {
					require.Equal(t, want, r.at(i).bytes)
				}
			},
		})
	})
}

func linesOf(ds ...*delivery) lines {
	l := newLines()
	for _, d := range ds {
		l.add(item{delivery: d})
	}
	return l
}

func namesOf(ds []*delivery) []string {
	var s []string
	for _, d := range ds {
		s = append(s, d.row.ID)
	}
	return s
}

func TestOnlyTheHeadOfALineCanBeSent(t *testing.T) {
	t.Parallel()
	l := linesOf(row("a1", "a"), row("a2", "a"), row("x", ""), row("b1", "b"), row("y", ""))
	require.Equal(t, []string{"a1", "x", "b1", "y"}, namesOf(deliveries(l.take(l.ready.len()))))
	require.Equal(t, 1, l.rows)
}

func TestADeliveryLetsTheNextOfItsLineGoBeforeOthers(t *testing.T) {
	t.Parallel()
	l := linesOf(row("a1", "a"), row("a2", "a"), row("x", ""))
	l.take(1)
	require.Empty(t, l.done("a", true))
	require.Equal(t, []string{"a2", "x"}, namesOf(deliveries(l.take(2))))
	require.Empty(t, l.done("a", true))
	require.Empty(t, l.behind, "a line at its end takes no memory")
}

func TestAFailureSendsTheRestOfItsLineBack(t *testing.T) {
	t.Parallel()
	l := linesOf(row("a1", "a"), row("b1", "b"), row("a2", "a"), row("a3", "a"), row("b2", "b"))
	l.take(2)
	require.Equal(t, []string{"a2", "a3"}, namesOf(l.done("a", false)))
	require.Empty(t, l.done("b", true))
	require.Equal(t, []string{"b2"}, namesOf(deliveries(l.take(1))))
}

func TestDropTakesEveryLineInItsOrderAndKeepsThoseInFlightBusy(t *testing.T) {
	t.Parallel()
	l := linesOf(row("a1", "a"), row("a2", "a"), row("b1", "b"), row("b2", "b"), row("x", ""))
	l.take(1)
	require.ElementsMatch(t, []string{"b1", "b2", "x", "a2"}, namesOf(l.drop()))
	require.Zero(t, l.rows)

	l.add(item{delivery: row("a2", "a")})
	require.Zero(t, l.ready.len(), "a1 is in flight still")
	l.add(item{delivery: row("b1", "b")})
	require.Equal(t, 1, l.ready.len())
}
