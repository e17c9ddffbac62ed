package e2e_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const scheduling = `{enabled: %t, jobs: [{name: tick, every: 100ms, sql: "INSERT INTO pgrelay.outbox_events (event_type, payload) VALUES ('q', '1')"}]}`

func TestSchedulerIsSwitchedBySIGHUPWhileTheOutboxGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"scheduler": fmt.Sprintf(scheduling, true)})
	p := w.start()
	w.arrive(standardQueue, 3)

	w.configure(sections{"scheduler": fmt.Sprintf(scheduling, false)})
	p.signal(syscall.SIGHUP)
	p.says("scheduler switched off; what is in the outboxes still goes out")
	ticks, off := w.rows("q"), w.string(`SELECT clock_timestamp()::text`)
	w.insert("f", 20)
	w.arrive(fifoQueue, 20)
	w.configure(sections{"scheduler": "{enabled: perhaps}"})
	p.signal(syscall.SIGHUP)
	p.says("SIGHUP: the configuration can't be used; nothing is changed")
	w.eventually("true", `SELECT (clock_timestamp() > $1::text::timestamptz + interval '2 s')::text`, off)
	w.settled(0)
	require.LessOrEqual(t, w.rows("q"), ticks+1, "one run may have been under way")

	sent := w.sqs.Count(standardQueue)
	w.configure(sections{"scheduler": fmt.Sprintf(scheduling, true)})
	p.signal(syscall.SIGHUP)
	p.says("scheduler switched on")
	w.arrive(standardQueue, sent+3)
	p.signal(syscall.SIGHUP)
	p.says("SIGHUP: scheduler.enabled is as it was, and nothing else is taken without a restart")
	p.stop()
}

// rows counts those of a kind.
func (w *world) rows(kind string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.conn.QueryRow(w.t.Context(), `SELECT count(*) FROM pgrelay.outbox_events WHERE event_type = $1`, kind).Scan(&n))
	return n
}

func TestOnlyTheLeaderRunsJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sections{"scheduler": fmt.Sprintf(scheduling, true)})
	const sessions = `SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pgrelay job tick'`
	first := w.start()
	second := w.standBy()
	w.arrive(standardQueue, 3)
	require.Equal(t, "1", w.string(sessions))
	require.Zero(t, first.terminate())
	sent := w.sqs.Count(standardQueue)
	w.arrive(standardQueue, sent+3)
	second.stop()
}
