-- What pgrelay remembers beside the outboxes. An outbox is named here by its schema
-- and table as quote_ident prints them, e.g. pgrelay.outbox_events or public."Outbox";
-- a row by its key as text. Nothing refers to a user's table by a foreign key: the
-- tables, and their rows, come and go without asking.

-- +goose Up

-- The batches in flight. A row is written by a claim and deleted by its stamp, so the
-- table is nearly empty and all churn: vacuum goes by a number of dead rows and not by
-- a share of a size that means nothing, and room is left on the pages because taking
-- ids out of a claim changes no indexed column (HOT).
CREATE TABLE pgrelay.claims (
    id         bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    outbox     text NOT NULL,
    instance   uuid NOT NULL,
    -- The lead in which it was made. Ids repeat when a crash of the server loses the
    -- sequence's last values together with claims; a takeover is durable, so epochs don't.
    epoch      bigint NOT NULL DEFAULT 0,
    ids        text[] NOT NULL,
    -- The row went alone in the process, so that a crash counts as its attempt.
    alone      boolean NOT NULL DEFAULT false,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 1000
);

-- The rows that did not go through at the first try. A row here waits for
-- next_attempt_at, or is dead, or is uncertain (dead_at is set then, too).
CREATE TABLE pgrelay.failures (
    outbox          text NOT NULL,
    row_id          text NOT NULL,
    event_id        text NOT NULL DEFAULT '',
    kind            text NOT NULL DEFAULT '',
    attempts        integer NOT NULL DEFAULT 0, -- refusals of this row, and crashes alone
    unknowns        integer NOT NULL DEFAULT 0, -- sends without an answer
    crashes         integer NOT NULL DEFAULT 0, -- returns from a dead process
    generation      bigint,                     -- null: never republished
    next_attempt_at timestamptz,
    dead_at         timestamptz,
    uncertain       boolean NOT NULL DEFAULT false,
    -- Of a dead row whose route says on_dead: block, the ordering key that it holds, at which destination.
    holds_key       text,
    holds_to        text,
    claim           bigint,                     -- the claim that counted last,
    epoch           bigint,                     -- and its lead
    reason          text NOT NULL DEFAULT '',   -- a short token
    detail          text NOT NULL DEFAULT '',   -- a sentence for a person
    since           timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (outbox, row_id),
    CONSTRAINT failures_waits_or_dead CHECK ((next_attempt_at IS NULL) <> (dead_at IS NULL)),
    CONSTRAINT failures_uncertain_is_dead CHECK (NOT uncertain OR dead_at IS NOT NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Retries that are due, and when the next one is.
CREATE INDEX failures_waiting ON pgrelay.failures (outbox, next_attempt_at) WHERE dead_at IS NULL;

-- Dead letters, listed and counted.
CREATE INDEX failures_dead ON pgrelay.failures (outbox, dead_at) WHERE dead_at IS NOT NULL;

-- The dead row that holds an ordering key. Hashed, because a key may be longer than a B-tree takes.
CREATE INDEX failures_holding ON pgrelay.failures USING hash (holds_key) WHERE dead_at IS NOT NULL;

-- Who leads: one row, upserted on singleton by whoever takes the lead, and touched
-- each second, hence the room for HOT updates.
CREATE TABLE pgrelay.leader (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    instance  uuid NOT NULL,
    epoch     bigint NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Generations of republished rows. They never repeat, so neither does a deduplication id.
CREATE SEQUENCE pgrelay.generations AS bigint CACHE 1;

-- The optional ledger of event ids that were published.
CREATE TABLE pgrelay.processed_events (
    event_id     text PRIMARY KEY,
    processed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX processed_events_processed_at ON pgrelay.processed_events (processed_at); -- retention.ledger

-- Sends of at_most_once routes: written before the send, deleted by a known failure;
-- without sent_at the outcome is unknown.
CREATE TABLE pgrelay.notification_sends (
    event_id   text NOT NULL,
    recipient  text NOT NULL,
    event_type text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at    timestamptz,
    last_error text,
    UNIQUE (event_id, recipient, event_type)
);

-- +goose Down

DROP TABLE pgrelay.notification_sends;
DROP TABLE pgrelay.processed_events;
DROP SEQUENCE pgrelay.generations;
DROP TABLE pgrelay.leader;
DROP TABLE pgrelay.failures;
DROP TABLE pgrelay.claims;
