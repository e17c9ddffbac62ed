package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVerdicts(t *testing.T) {
	t.Parallel()
	refused := Result{OutcomeRetry, "internal_error", "the service had a problem"}
	silent := Result{OutcomeUnknown, "timeout", "no answer in 15s"}
	works := evidence{sinceFirst: true, sinceLast: true}
	for name, c := range map[string]struct {
		row  Row
		res  Result
		seen evidence
		want verdict
	}{
		"delivered": {res: Result{Outcome: OutcomeDelivered}, want: verdict{kind: verdictDelivered}},
		"delivered after failures": {
			row: Row{Attempts: 2, Unknowns: 3}, res: Result{Outcome: OutcomeDelivered}, want: verdict{kind: verdictDelivered},
		},
		"back costs nothing": {
			row: Row{Attempts: 9, Unknowns: 9}, res: Result{OutcomeBack, "unreachable", "x"}, seen: works, want: verdict{kind: verdictBack},
		},
		"rejected dies at once": {
			res: Result{OutcomeRejected, "too_large", "over 1 MiB"}, want: verdict{verdictDead, 0, "too_large", "over 1 MiB"},
		},
		"refused waits": {
			res: refused, seen: works, want: verdict{verdictRetry, time.Second, "internal_error", "the service had a problem"},
		},
		"refused again waits longer": {
			row: Row{Attempts: 1}, res: refused, seen: works, want: verdict{verdictRetry, 2 * time.Second, "internal_error", "the service had a problem"},
		},
		"refused at its last attempt dies": {
			row: Row{Attempts: 2}, res: refused, seen: works, want: verdict{verdictDead, 0, "internal_error", "the service had a problem"},
		},
		"refused at its last attempt while nothing gets through lives on": {
			row: Row{Attempts: 2}, res: refused, want: verdict{verdictRetry, 4 * time.Second, "internal_error", "the service had a problem"},
		},
		"refused far beyond its last attempt dies when something got through": {
			row: Row{Attempts: 50}, res: refused, seen: evidence{sinceFirst: true}, want: verdict{verdictDead, 0, "internal_error", "the service had a problem"},
		},
		"unknown costs no attempt": {
			row: Row{Attempts: 2}, res: silent, seen: works, want: verdict{verdictUnknown, time.Second, "timeout", "no answer in 15s"},
		},
		"unknown backs off by its own count": {
			row: Row{Attempts: 2, Unknowns: 2}, res: silent, seen: works, want: verdict{verdictUnknown, 4 * time.Second, "timeout", "no answer in 15s"},
		},
		"unknown three times alone while others got through is charged": {
			row: Row{Unknowns: 3}, res: silent, seen: works, want: verdict{verdictRetry, 8 * time.Second, "timeout", "no answer in 15s"},
		},
		"unknown for ever while nothing gets through is not charged": {
			row: Row{Unknowns: 30}, res: silent, seen: evidence{sinceFirst: true}, want: verdict{verdictUnknown, 5 * time.Minute, "timeout", "no answer in 15s"},
		},
		"uncertain is final": {
			row: Row{Unknowns: 1}, res: Result{outcomeUncertain, "uncertain", "no answer in 15s"}, seen: works,
			want: verdict{verdictUncertain, 0, "uncertain", "no answer in 15s"},
		},
		"unknown as its last attempt dies": {
			row: Row{Attempts: 2, Unknowns: 3}, res: silent, seen: works, want: verdict{verdictDead, 0, "timeout", "no answer in 15s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, decide(retryOf(3), &c.row, c.res, c.seen, 0.5))
		})
	}
}

func TestARefusedMessageKeepsTheReasonOfItsRejection(t *testing.T) {
	t.Parallel()
	require.Equal(t, Result{OutcomeRejected, "too_large", "over 1 MiB"}, rejected(&Rejection{"too_large", "over 1 MiB"}))
	require.Equal(t, Result{OutcomeRejected, "refused", "odd"}, rejected(errors.New("odd")))
}
