-- The calendar's own tables. pgrelay adds no column to them.

CREATE TABLE links (            -- a person's account at a provider
  id      uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  address text NOT NULL
);

CREATE TABLE calendar_backfill_jobs (
  id      uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  link_id uuid NOT NULL REFERENCES links,
  kind    text NOT NULL         -- google_calendar; others are not supported yet
);

CREATE TABLE email_backfill_jobs (
  id                      uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  link_id                 uuid REFERENCES links ON DELETE SET NULL,
  status                  text NOT NULL DEFAULT 'InProgress',   -- then Complete
  threads_requested_limit int,                                  -- NULL: the whole mailbox
  initialized_at          timestamptz
);

-- The outboxes. What a message is made of stands in the jobs.

CREATE TABLE calendar_sync_outbox (
  id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  backfill_job_id uuid NOT NULL UNIQUE REFERENCES calendar_backfill_jobs,
  created_at      timestamptz NOT NULL DEFAULT now(),
  published_at    timestamptz
);

CREATE TABLE email_backfill_init_outbox (
  id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  backfill_job_id uuid NOT NULL UNIQUE REFERENCES email_backfill_jobs,
  created_at      timestamptz NOT NULL DEFAULT now(),
  published_at    timestamptz
);

CREATE TABLE email_backfill_completion_outbox (
  id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  backfill_job_id uuid NOT NULL UNIQUE REFERENCES email_backfill_jobs,
  created_at      timestamptz NOT NULL DEFAULT now(),
  published_at    timestamptz,
  completed_at    timestamptz   -- the calendar's own: the backfill's follow-up is done
);

CREATE INDEX ON calendar_sync_outbox (created_at, id) WHERE published_at IS NULL;
CREATE INDEX ON email_backfill_init_outbox (created_at, id) WHERE published_at IS NULL;
CREATE INDEX ON email_backfill_completion_outbox (created_at, id) WHERE published_at IS NULL;

-- What the scheduler puts into them.

CREATE TABLE calendar_syncs (   -- the same job again and again
  backfill_job_id uuid PRIMARY KEY REFERENCES calendar_backfill_jobs,
  every           interval NOT NULL,
  next_at         timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE email_syncs (      -- a new job each time
  link_id uuid PRIMARY KEY REFERENCES links ON DELETE CASCADE,
  every   interval NOT NULL,
  next_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX ON calendar_syncs (next_at);
CREATE INDEX ON email_syncs (next_at);
