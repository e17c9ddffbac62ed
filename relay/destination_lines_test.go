package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheNextOfALineIsSentWhenTheOneBeforeIsDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: slow(time.Second)}, nil)
		s.warm()
		s.enqueue([]*delivery{row("a1", "a"), row("a2", "a"), row("b1", "b"), row("a3", "a")})
		synctest.Wait()
		require.Equal(t, [][]string{{"a1", "b1"}}, s.pub.sent())
		pass(time.Second)
		require.Equal(t, [][]string{{"a1", "b1"}, {"a2"}}, s.pub.sent())
		pass(time.Second)
		require.Equal(t, [][]string{{"a1", "b1"}, {"a2"}, {"a3"}}, s.pub.sent())
	})
}

func TestAnythingButADeliverySendsTheRestOfTheLineBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome Outcome
		kind    verdictKind
	}{
		"refused":  {OutcomeRetry, verdictRetry},
		"rejected": {OutcomeRejected, verdictDead},
		"unknown":  {OutcomeUnknown, verdictUnknown},
		"back":     {OutcomeBack, verdictBack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, &fakePublisher{}, nil)
				s.pub.answer = func(_ context.Context, batch []*Message) ([]Result, *Fault) {
					rs := all(batch, OutcomeDelivered)
					for i, m := range batch {
						if m.RowID == "a1" {
							rs[i] = Result{Outcome: c.outcome}
						}
					}
					return rs, nil
				}
				s.enqueue([]*delivery{row("a1", "a"), row("a2", "a"), row("b1", "b"), row("a3", "a"), row("b2", "b")})
				require.Equal(t, map[string]verdictKind{
					"a1": c.kind, "a2": verdictBack, "a3": verdictBack, "b1": verdictDelivered, "b2": verdictDelivered,
				}, s.kinds(t))
				require.Empty(t, s.lines.behind)

				s.forget()
				s.enqueue([]*delivery{row("a4", "a")})
				require.Equal(t, map[string]verdictKind{"a4": verdictDelivered}, s.kinds(t), "the line is free again")
			})
		})
	}
}

func TestOneOfABatchRefusedLeavesItsNeighboursAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: refuse("3")}, nil)
		s.enqueue(rows(0, 10))
		out := s.kinds(t)
		require.Equal(t, verdictRetry, out["3"])
		delete(out, "3")
		require.Len(t, out, 9)
		for id, kind := range out {
			require.Equal(t, verdictDelivered, kind, id)
		}
		require.False(t, s.state().paused)
	})
}

// refuse delivers everything but one row.
func refuse(id string) func(context.Context, []*Message) ([]Result, *Fault) {
	return func(_ context.Context, batch []*Message) ([]Result, *Fault) {
		rs := all(batch, OutcomeDelivered)
		for i, m := range batch {
			if m.RowID == id {
				rs[i] = Result{Outcome: OutcomeRetry, Reason: "internal_error"}
			}
		}
		return rs, nil
	}
}

// last is a row at its last attempt.
func last(id string) *delivery {
	d := row(id, "")
	d.row.Attempts = 2
	return d
}

func TestARowDiesOfRefusalsWhenItsOwnCallAcceptedAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: refuse("bad")}, nil)
		s.enqueue([]*delivery{last("bad"), row("good", "")})
		require.Equal(t, map[string]verdictKind{"bad": verdictDead, "good": verdictDelivered}, s.kinds(t))
	})
}

func TestARowDiesOfRefusalsOnlyWhenAnotherWasAcceptedSinceItsFirstTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: refuse("bad")}, nil)
		try := func(d *delivery) verdictKind {
			s.forget()
			s.enqueue([]*delivery{d})
			return s.kind(t, d.row.ID)
		}
		require.Equal(t, verdictDelivered, try(row("before", "")))
		for range 5 {
			require.Equal(t, verdictRetry, try(last("bad")), "it refuses everything, for all we know")
		}
		require.Equal(t, verdictDelivered, try(row("between", "")))
		require.Equal(t, verdictDead, try(last("bad")))
	})
}

func TestARowThatCutsTheConnectionGoesAloneAndIsChargedWhileOthersGetThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &fakePublisher{answer: func(_ context.Context, batch []*Message) ([]Result, *Fault) {
			for _, m := range batch {
				if m.RowID == "poison" {
					return all(batch, OutcomeUnknown), nil
				}
			}
			return all(batch, OutcomeDelivered), nil
		}}, nil)
		var got []verdictKind
		poison := row("poison", "")
		for poison.verdict.kind != verdictDead {
			s.forget()
			s.enqueue([]*delivery{poison, row("a", ""), row("b", "")})
			out := s.kinds(t)
			got = append(got, out["poison"])
			if len(got) == 1 {
				require.Equal(t, verdictUnknown, out["a"], "the first time it takes its neighbours with it")
			} else {
				require.Equal(t, verdictDelivered, out["a"])
			}
			switch poison.verdict.kind {
			case verdictUnknown:
				poison.row.Unknowns++
			case verdictRetry:
				poison.row.Attempts++
			}
		}
		u, r := verdictUnknown, verdictRetry
		require.Equal(t, []verdictKind{u, u, u, r, r, verdictDead}, got)
		require.False(t, s.state().paused)
	})
}
