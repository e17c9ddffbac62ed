package replication

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsDoneAboutASlot(t *testing.T) {
	t.Parallel()
	healthy := SlotState{Exists: true, Plugin: plugin, Database: "d", RestartLSN: "0/1", ConfirmedFlushLSN: "0/1", RetainedBytes: 100}
	with := func(change func(*SlotState)) SlotState {
		st := healthy
		change(&st)
		return st
	}
	for name, c := range map[string]struct {
		state     SlotState
		cfg       Config
		older     bool
		action    slotAction
		why, says string
	}{
		"missing":                   {state: SlotState{}, action: slotCreate, why: replaceMissing},
		"healthy":                   {state: healthy, action: slotUse},
		"at its budget":             {state: healthy, cfg: Config{MaxRetainedWAL: 100}, action: slotUse},
		"over budget":               {state: healthy, cfg: Config{MaxRetainedWAL: 99}, action: slotReplace, why: replaceOverBudget},
		"older than publication":    {state: healthy, older: true, action: slotReplace, why: replacePublication},
		"lasting, not wanted so":    {state: healthy, cfg: Config{Temporary: true}, action: slotReplace, why: replaceLasting},
		"lost":                      {state: with(func(s *SlotState) { s.Lost = true; s.ConfirmedFlushLSN = "" }), action: slotReplace, why: replaceLost},
		"half made":                 {state: with(func(s *SlotState) { s.ConfirmedFlushLSN = "" }), action: slotReplace, why: replaceUnfinished},
		"held, whatever it is":      {state: with(func(s *SlotState) { s.Holder = Holder{PID: 7}; s.Lost = true }), says: "read by process 7"},
		"foreign, whatever it is":   {state: with(func(s *SlotState) { s.Foreign = true; s.Lost = true; s.Holder.PID = 7 }), older: true, says: `database "d" and plugin "pgoutput"`},
		"physical of the same name": {state: SlotState{Exists: true, Foreign: true}, says: "physical"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			action, why, err := c.state.decide(&c.cfg, c.older)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.action, action)
			require.Equal(t, c.why, why)
		})
	}
}
