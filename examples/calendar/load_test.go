package main

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// load is a producer that goes on until it is stopped, in all three outboxes.
type load struct {
	stopped context.CancelFunc
	done    sync.WaitGroup
	err     error
}

func (w *world) produce() *load {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	l := &load{stopped: cancel}
	conn := w.Connect()
	l.done.Go(func() {
		for n := 0; l.err == nil && ctx.Err() == nil; n++ {
			// A transaction that has begun is ended, so that what is there is known.
			l.err = w.round(context.WithoutCancel(ctx), conn, n)
		}
	})
	w.t.Cleanup(func() { l.stop(w.t) })
	return l
}

func (l *load) stop(t *testing.T) {
	t.Helper()
	l.stopped()
	l.done.Wait()
	require.NoError(t, l.err)
}

func TestKilledUnderLoadNothingIsLostAndNothingThatIsReadyIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.produce()
	for range 4 {
		d := w.Start()
		w.Arrive(calendarQueue, w.SQS.Count(calendarQueue)+40)
		w.Arrive(mailQueue, w.SQS.Count(mailQueue)+40)
		d.Kill()
	}
	l.stop(t)
	d := w.Start()
	w.Eventually("0", `SELECT ((SELECT count(*) FROM calendar_sync_outbox WHERE published_at IS NULL)
		+ (SELECT count(*) FROM email_backfill_init_outbox o JOIN email_backfill_jobs job ON job.id = o.backfill_job_id
		    WHERE o.published_at IS NULL AND job.status = 'InProgress' AND job.initialized_at IS NOT NULL)
		+ (SELECT count(*) FROM email_backfill_completion_outbox WHERE published_at IS NULL)
		+ (SELECT count(*) FROM pgrelay.claims))::text`)
	w.stop(d)

	calendar, mail := w.SQS.Messages(calendarQueue), w.SQS.Messages(mailQueue)
	for name, c := range map[string]struct {
		got  []string
		want string
	}{
		"google calendars": {w.jobs(calendar, "CalendarGoogleBackfill"), `SELECT id::text FROM calendar_backfill_jobs WHERE kind = 'google_calendar'`},
		"initialized jobs": {w.jobs(mail, "ListThreads"), `SELECT job.id::text FROM email_backfill_jobs job
			JOIN email_backfill_init_outbox o ON o.backfill_job_id = job.id WHERE o.published_at IS NOT NULL`},
		"complete jobs": {w.jobs(mail, "BackfillComplete"), `SELECT job.id::text FROM email_backfill_jobs job
			JOIN email_backfill_completion_outbox o ON o.backfill_job_id = job.id WHERE job.link_id IS NOT NULL`},
	} {
		want := unique(w.Strings(c.want))
		require.Equal(t, want, unique(c.got), name)
		require.NotEmpty(t, want, name)
		t.Logf("%s: %d rows, %d messages", name, len(want), len(c.got))
	}
	// Of the jobs that never were initialized none has gone; the end of those without a link is written.
	require.Equal(t, []string{"true true"}, w.Strings(`SELECT (SELECT count(*) > 0 AND bool_and(o.published_at IS NULL)
		FROM email_backfill_init_outbox o JOIN email_backfill_jobs job ON job.id = o.backfill_job_id WHERE job.initialized_at IS NULL) || ' ' ||
		(SELECT count(*) > 0 AND bool_and(o.completed_at IS NOT NULL) FROM email_backfill_completion_outbox o
		  JOIN email_backfill_jobs job ON job.id = o.backfill_job_id WHERE job.link_id IS NULL)`))
}

// round makes jobs of each sort: of a kind that goes out and of one that doesn't; that are ready, or never will be; that end with a
// link and without.
func (w *world) round(ctx context.Context, conn *pgx.Conn, n int) error {
	kind := "google_calendar"
	if n%5 == 0 {
		kind = "outlook_calendar"
	}
	if _, err := backfillCalendar(ctx, conn, w.link, kind); err != nil {
		return err
	}
	job, err := backfillMail(ctx, conn, w.link, nil)
	if err != nil || n%7 == 0 {
		return err
	}
	if err := initialize(ctx, conn, job); err != nil || n%3 > 0 {
		return err
	}
	if n%2 == 0 {
		if _, err := conn.Exec(ctx, `UPDATE email_backfill_jobs SET link_id = NULL WHERE id = $1`, job); err != nil {
			return err
		}
	}
	return complete(ctx, conn, job)
}
