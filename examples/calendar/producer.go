package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// link makes a link to an account.
func link(ctx context.Context, conn *pgx.Conn, address string) (id string, err error) {
	if err := conn.QueryRow(ctx, `INSERT INTO links (address) VALUES ($1) RETURNING id`, address).Scan(&id); err != nil {
		return "", fmt.Errorf("linking %s: %w", address, err)
	}
	return id, nil
}

// backfillCalendar makes a job and announces it, in one transaction: either both are there or neither.
func backfillCalendar(ctx context.Context, conn *pgx.Conn, link, kind string) (job string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `INSERT INTO calendar_backfill_jobs (link_id, kind) VALUES ($1, $2) RETURNING id`, link, kind).Scan(&job)
		if err != nil {
			return fmt.Errorf("making a calendar job: %w", err)
		}
		if _, err = tx.Exec(ctx, `INSERT INTO calendar_sync_outbox (backfill_job_id) VALUES ($1)`, job); err != nil {
			return fmt.Errorf("announcing a calendar job: %w", err)
		}
		return nil
	})
	return job, err
}

// backfillMail makes a job for so many threads, or without a limit for all, and announces it. The message waits until the job is
// initialized.
func backfillMail(ctx context.Context, conn *pgx.Conn, link string, limit *int) (job string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `INSERT INTO email_backfill_jobs (link_id, threads_requested_limit) VALUES ($1, $2) RETURNING id`, link, limit).Scan(&job)
		if err != nil {
			return fmt.Errorf("making a mail job: %w", err)
		}
		if _, err = tx.Exec(ctx, `INSERT INTO email_backfill_init_outbox (backfill_job_id) VALUES ($1)`, job); err != nil {
			return fmt.Errorf("announcing a mail job: %w", err)
		}
		return nil
	})
	return job, err
}

// initialize makes a mail job ready to begin.
func initialize(ctx context.Context, conn *pgx.Conn, job string) error {
	if _, err := conn.Exec(ctx, `UPDATE email_backfill_jobs SET initialized_at = now() WHERE id = $1`, job); err != nil {
		return fmt.Errorf("initializing a mail job: %w", err)
	}
	return nil
}

// complete ends a mail job and announces that.
func complete(ctx context.Context, conn *pgx.Conn, job string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE email_backfill_jobs SET status = 'Complete' WHERE id = $1`, job); err != nil {
			return fmt.Errorf("completing a mail job: %w", err)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO email_backfill_completion_outbox (backfill_job_id) VALUES ($1)`, job); err != nil {
			return fmt.Errorf("announcing the end of a mail job: %w", err)
		}
		return nil
	})
}
