package relay

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeClaims takes every claim and notes how it ended.
type fakeClaims struct {
	mu      sync.Mutex
	answer  func(c *sendClaim) claimState
	claimed []string
	ended   map[string]claimEnd
}

func (f *fakeClaims) claim(cs []*sendClaim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range cs {
		c.state = claimTaken
		if f.answer != nil {
			c.state = f.answer(c)
		}
		f.claimed = append(f.claimed, c.recipient)
	}
}

func (f *fakeClaims) settle(cs []*sendClaim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil {
		f.ended = map[string]claimEnd{}
	}
	for _, c := range cs {
		f.ended[c.recipient] = c.end
	}
}

// addressedFake is a fake publisher whose messages list their recipients.
type addressedFake struct{ *fakePublisher }

func (addressedFake) Recipients(m *Message) (to []string) {
	if err := json.Unmarshal([]byte(m.Body), &to); err != nil {
		panic(err) // the test wrote it
	}
	return to
}

var mailTable = &Table{Name: "public.outbox", Sends: &SendTable{Name: "sends"}, once: []bool{true}, private: []bool{true}, sinks: []int{0}}

func mailTo(id, to string) *delivery {
	return &delivery{table: mailTable, row: Row{ID: id}, msg: &Message{RowID: id, EventID: "e" + id, Body: to}}
}

func beginMail(t *testing.T, answer func(ctx context.Context, m *Message) (Result, *Fault)) (*stage, *fakeClaims) {
	t.Helper()
	claims := &fakeClaims{}
	pub := &fakePublisher{limits: Limits{Messages: 1}, answer: func(ctx context.Context, batch []*Message) ([]Result, *Fault) {
		r, fault := answer(ctx, batch[0])
		return []Result{r}, fault
	}}
	s := begin(t, pub, func(c *destinationConfig) { c.pub, c.sends = addressedFake{pub}, claims })
	s.warm()
	return s, claims
}

func TestAbortIsHeededBetweenTwoRecipients(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(s *stage){
		"drain":        func(s *stage) { s.abort() },
		"the lead":     func(s *stage) { s.fresh.Store(false) },
		"out of time":  func(s *stage) { go s.cancel() },
		"not the lead": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, claims := beginMail(t, func(context.Context, *Message) (Result, *Fault) {
					<-time.After(time.Second)
					return Result{Outcome: OutcomeDelivered}, nil
				})
				s.enqueue([]*delivery{mailTo("1", `["ann", "bob"]`)})
				pass(500 * time.Millisecond)
				if stop != nil {
					stop(s)
				}
				pass(3 * time.Second)
				if stop == nil {
					require.Equal(t, verdictDelivered, s.kind(t, "1"))
					return
				}
				require.Equal(t, verdictBack, s.kind(t, "1"))
				require.Len(t, s.pub.sent(), 1, "bob gets nothing")
				require.Equal(t, endSent, claims.ended["ann"], "ann keeps hers")
				require.NotEqual(t, endSent, claims.ended["bob"])
			})
		})
	}
}

func TestLeadLostWhileASendIsClaimedReleasesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, claims := beginMail(t, func(context.Context, *Message) (Result, *Fault) { return Result{Outcome: OutcomeDelivered}, nil })
		claims.answer = func(*sendClaim) claimState {
			s.fresh.Store(false)
			return claimTaken
		}
		s.enqueue([]*delivery{mailTo("1", `["ann"]`)})
		require.Equal(t, verdictBack, s.kind(t, "1"))
		require.Empty(t, s.pub.sent())
		require.Equal(t, endReleased, claims.ended["ann"])
	})
}

func TestEachRecipientHasATimeOutOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, claims := beginMail(t, func(ctx context.Context, m *Message) (Result, *Fault) {
			if m.Recipient == "bob" {
				<-time.After(15 * time.Second) // the publisher's deadline
				return Result{Outcome: OutcomeUnknown, Reason: "timeout", Detail: "no answer"}, nil
			}
			<-time.After(10 * time.Second)
			return Result{Outcome: OutcomeDelivered}, ctxFault(ctx)
		})
		s.enqueue([]*delivery{mailTo("1", `["ann", "bob", "cid"]`)})
		pass(time.Minute)
		v := s.outcomes(t)["1"]
		require.Equal(t, verdictUncertain, v.kind)
		require.Equal(t, "unknown whether it arrived: bob (timeout: no answer)", v.detail)
		require.Equal(t, map[string]claimEnd{"ann": endSent, "bob": endKept, "cid": endSent}, claims.ended)
		m := s.measured(t)
		require.EqualValues(t, 2, m["pgrelay_published_total bookings"])
		require.EqualValues(t, 1, m["pgrelay_publish_failures_total bookings timeout"])
	})
}

// ctxFault says that a call had less than its own time.
func ctxFault(ctx context.Context) *Fault {
	if ctx.Err() != nil {
		return &Fault{Reason: "late"}
	}
	return nil
}

func TestFaultAmongRecipientsGivesTheRowBackAndKeepsWhatArrived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, claims := beginMail(t, func(_ context.Context, m *Message) (Result, *Fault) {
			if m.Recipient == "bob" {
				return Result{Outcome: OutcomeBack}, &Fault{Reason: "unreachable"}
			}
			return Result{Outcome: OutcomeDelivered}, nil
		})
		s.enqueue([]*delivery{mailTo("1", `["ann", "bob", "cid"]`)})
		require.Equal(t, verdictBack, s.kind(t, "1"))
		require.Equal(t, map[string]claimEnd{"ann": endSent, "bob": endReleased}, claims.ended)
		require.Equal(t, "unreachable", s.state().reason)
	})
}

func TestClaimsThatCannotBeMadePauseTheDestinationAndCostNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, claims := beginMail(t, func(context.Context, *Message) (Result, *Fault) { return Result{Outcome: OutcomeDelivered}, nil })
		claims.answer = func(*sendClaim) claimState { return claimAway }
		s.enqueue([]*delivery{mailTo("1", `["ann", "bob"]`)})
		require.Equal(t, verdictBack, s.kind(t, "1"))
		require.Equal(t, reasonNoClaims, s.state().reason)
		require.Equal(t, []string{"ann"}, claims.claimed)
		require.EqualValues(t, 1, s.measured(t)["pgrelay_publish_failures_total bookings "+reasonNoClaims])
	})
}

func TestRecipientsAreNotLogged(t *testing.T) {
	t.Parallel()
	d := mailTo("1", `["ann"]`)
	d.verdict = verdict{kind: verdictDead, reason: "recipient_refused", detail: "refused for good: ann (550)"}
	require.NotContains(t, d.loggable().detail, "ann")
	require.Contains(t, d.verdict.detail, "ann", "the database has the name")
	d.table = someTable
	require.Equal(t, d.verdict, d.loggable())
}
