package relay

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTriesCompareAcceptancesWithTheFirstAndTheLastTry(t *testing.T) {
	t.Parallel()
	k := rowKey{"outbox", "1"}
	m := newTries()
	require.Equal(t, evidence{}, m.failed(k, 5, 5), "nothing was accepted while it was tried")
	require.Equal(t, evidence{}, m.failed(k, 5, 5))
	require.Equal(t, evidence{true, true}, m.failed(k, 7, 7), "two since")
	require.Equal(t, evidence{sinceFirst: true}, m.failed(k, 7, 7), "none since the last")
	m.forget(k)
	require.Equal(t, evidence{}, m.failed(k, 7, 7), "a forgotten row is tried for the first time")
}

func TestTriesCountAnAcceptanceInTheSameCall(t *testing.T) {
	t.Parallel()
	require.Equal(t, evidence{true, true}, newTries().failed(rowKey{"outbox", "1"}, 5, 6))
}

func TestTriesAreBounded(t *testing.T) {
	t.Parallel()
	m := newTries()
	for i := range 2 * triesKept {
		m.failed(rowKey{"outbox", strconv.Itoa(i)}, 0, 0)
	}
	require.Equal(t, triesKept, m.lru.Len())
}
