package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pgrelay/internal/exampletest"
	"pgrelay/internal/sqstest"
	"pgrelay/internal/stage"
)

const stamped = "row is malformed: stamped without being sent"

// world is the example's with what its producer does.
type world struct {
	*exampletest.World
	t    *testing.T
	link string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: exampletest.New(t, calendarQueue, mailQueue), t: t}
	w.link = w.must(link(t.Context(), w.Conn, "ada@example.com"))
	return w
}

func (w *world) must(id string, err error) string {
	w.t.Helper()
	require.NoError(w.t, err)
	return id
}

func (w *world) calendarJob(kind string) string {
	w.t.Helper()
	return w.must(backfillCalendar(w.t.Context(), w.Conn, w.link, kind))
}

func (w *world) mailJob(limit *int) string {
	w.t.Helper()
	return w.must(backfillMail(w.t.Context(), w.Conn, w.link, limit))
}

// stop drains a relay.
func (w *world) stop(d *stage.Daemon) {
	w.t.Helper()
	require.NoError(w.t, d.Stop())
}

// pending waits until so many rows of an outbox are not stamped.
func (w *world) pending(outbox string, n int) {
	w.t.Helper()
	w.Eventually(fmt.Sprint(n), `SELECT count(*)::text FROM `+outbox+` WHERE published_at IS NULL`)
}

// jobs are those that messages of a kind name, in the order of arrival; each must be well formed and name the link.
func (w *world) jobs(messages []sqstest.Message, kind string) (ids []string) {
	w.t.Helper()
	for _, m := range messages {
		var body map[string]struct {
			LinkID string `json:"link_id"`
			JobID  string `json:"job_id"`
		}
		require.NoError(w.t, json.Unmarshal([]byte(m.Body), &body), m.Body)
		require.Len(w.t, body, 1)
		if b, ok := body[kind]; ok {
			require.Equal(w.t, w.link, b.LinkID)
			ids = append(ids, b.JobID)
		}
	}
	return ids
}

func TestTheOutboxesHaveNoColumnForPgrelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const bare = "id uuid, backfill_job_id uuid, created_at timestamp with time zone, published_at timestamp with time zone"
	require.Equal(t, []string{
		"calendar_sync_outbox: " + bare,
		"email_backfill_completion_outbox: " + bare + ", completed_at timestamp with time zone",
		"email_backfill_init_outbox: " + bare,
	}, w.Strings(`SELECT table_name || ': ' || string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position)
		FROM information_schema.columns WHERE table_schema = 'public' AND table_name LIKE '%outbox' GROUP BY table_name ORDER BY table_name`))
	lines := regexp.MustCompile(`(?m)^.* outbox .*$`).FindAllString(w.Done("check"), -1)
	require.Len(t, lines, 6)
	for i, line := range lines {
		require.True(t, strings.HasPrefix(line, "ok "), line)
		if i >= 3 {
			require.Regexp(t, `a look goes by: .*Index Scan (on|using) \w+_outbox_created_at_id_idx.*Index Scan using \w+_jobs_pkey`, line)
		}
	}
}

func TestRowsGoOutAsTheirJobsSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.Start()
	google := w.calendarJob("google_calendar")
	require.JSONEq(t, `{"CalendarGoogleBackfill": {"link_id": "`+w.link+`", "job_id": "`+google+`"}}`, w.Arrive(calendarQueue, 1)[0].Body)

	limit := 100
	all, some := w.mailJob(nil), w.mailJob(&limit)
	for i, c := range []struct {
		job      string
		priority bool
	}{{all, true}, {some, false}} {
		require.NoError(t, initialize(t.Context(), w.Conn, c.job))
		require.JSONEq(t, fmt.Sprintf(`{"ListThreads": {"link_id": "%s", "job_id": "%s", "priority_pass": %t}}`, w.link, c.job, c.priority),
			w.Arrive(mailQueue, i+1)[i].Body)
	}
	require.NoError(t, complete(t.Context(), w.Conn, all))
	require.JSONEq(t, `{"BackfillComplete": {"link_id": "`+w.link+`", "job_id": "`+all+`"}}`, w.Arrive(mailQueue, 3)[2].Body)
	w.stop(d)
}

func TestARowWaitsUntilItsJobIsReadyAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	waiting, cancelled, next := w.mailJob(nil), w.mailJob(nil), w.mailJob(nil)
	require.NoError(t, initialize(t.Context(), w.Conn, next))
	require.NoError(t, initialize(t.Context(), w.Conn, cancelled))
	w.Exec(`UPDATE email_backfill_jobs SET status = 'Cancelled' WHERE id = $1`, cancelled)
	d := w.Start()
	require.Equal(t, []string{next}, w.jobs(w.Arrive(mailQueue, 1), "ListThreads"))
	w.pending("email_backfill_init_outbox", 2)
	require.NoError(t, initialize(t.Context(), w.Conn, waiting))
	require.Equal(t, []string{next, waiting}, w.jobs(w.Arrive(mailQueue, 2), "ListThreads"))
	w.stop(d)
	require.Equal(t, []string{cancelled}, w.Strings(`SELECT backfill_job_id::text FROM email_backfill_init_outbox WHERE published_at IS NULL`))
}

func TestWhatCannotBeMappedIsStampedWithALineInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	outlook := w.calendarJob("outlook_calendar")
	google := w.calendarJob("google_calendar")
	unlinked, linked := w.mailJob(nil), w.mailJob(nil)
	w.Exec(`UPDATE email_backfill_jobs SET link_id = NULL WHERE id = $1`, unlinked)
	for _, job := range []string{unlinked, linked} {
		require.NoError(t, complete(t.Context(), w.Conn, job))
	}
	d := w.Start()
	w.pending("calendar_sync_outbox", 0)
	w.pending("email_backfill_completion_outbox", 0)
	w.Says(d, stamped, 2)
	w.stop(d)
	require.Equal(t, []string{google}, w.jobs(w.SQS.Messages(calendarQueue), "CalendarGoogleBackfill"))
	require.Equal(t, []string{linked}, w.jobs(w.SQS.Messages(mailQueue), "BackfillComplete"))
	require.Equal(t, []string{unlinked}, w.Strings(`SELECT backfill_job_id::text FROM email_backfill_completion_outbox WHERE completed_at IS NOT NULL`))
	row := w.Strings(`SELECT id::text FROM calendar_sync_outbox WHERE backfill_job_id = $1`, outlook)[0]
	require.Contains(t, strings.Join(d.Logged(stamped), "\n"), row)
	require.Equal(t, "0", w.Strings(`SELECT count(*)::text FROM pgrelay.dead_letters`)[0])
}

func TestTheSchedulerRearmsRowsAndIsSwitchedOffAndOnWhileTheOutboxesDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	synced := w.calendarJob("google_calendar")
	w.Exec(`INSERT INTO calendar_syncs (backfill_job_id, every) VALUES ($1, '1 ms')`, synced)
	w.Exec(`INSERT INTO email_syncs (link_id, every) VALUES ($1, '1 ms')`, w.link)
	d := w.Start()
	require.Equal(t, []string{synced, synced, synced}, w.jobs(w.Arrive(calendarQueue, 3), "CalendarGoogleBackfill")[:3])
	require.Len(t, unique(w.jobs(w.Arrive(mailQueue, 2), "ListThreads")[:2]), 2, "each sync of mail is a job of its own")
	require.Equal(t, "1", w.Strings(`SELECT count(*)::text FROM calendar_sync_outbox`)[0], "the upsert took the row that was there")

	w.Edit("enabled: true ", "enabled: false ")
	d.Signal(syscall.SIGHUP)
	w.Says(d, "scheduler switched off; what is in the outboxes still goes out", 1)
	byHand := w.calendarJob("google_calendar")
	// Both are always due and were run every second; a run that was under way may still end.
	w.Eventually("true", `SELECT (clock_timestamp() > greatest((SELECT max(next_at) FROM calendar_syncs), (SELECT max(next_at) FROM email_syncs)) + interval '4 s')::text`)
	w.pending("calendar_sync_outbox", 0)
	w.pending("email_backfill_init_outbox", 0)
	sent := w.SQS.Count(calendarQueue)
	require.Contains(t, w.jobs(w.SQS.Messages(calendarQueue), "CalendarGoogleBackfill"), byHand)

	w.Edit("enabled: false ", "enabled: true ")
	d.Signal(syscall.SIGHUP)
	require.Equal(t, synced, w.jobs(w.Arrive(calendarQueue, sent+1), "CalendarGoogleBackfill")[sent])
	w.stop(d)
}

func unique(ids []string) map[string]bool {
	set := map[string]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func TestAJobIsRepublishedByItsID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.Start()
	first, second := w.calendarJob("google_calendar"), w.calendarJob("google_calendar")
	w.Arrive(calendarQueue, 2)
	w.pending("calendar_sync_outbox", 0)
	require.Contains(t, w.Done("republish", "--table", "calendar_sync_outbox", "--where", "backfill_job_id="+first), "1 row(s)")
	require.ElementsMatch(t, []string{first, second, first}, w.jobs(w.Arrive(calendarQueue, 3), "CalendarGoogleBackfill"))
	w.pending("calendar_sync_outbox", 0)
	w.stop(d)
	require.Equal(t, 3, w.SQS.Count(calendarQueue))
}

func TestTheRunnerPlaysToItsEnd(t *testing.T) {
	t.Parallel()
	var printed strings.Builder
	err := stage.Run(t.Context(), &printed, exampletest.Build(t), play())
	require.NoError(t, err, "%s", printed.String())
}
