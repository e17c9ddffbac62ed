-- The outbox that pgrelay brings. A producer needs event_type and payload only.
--
-- No privileges are granted here. The role of `pgrelay run` owns nothing and creates
-- nothing; it needs
--
--   GRANT USAGE ON SCHEMA pgrelay TO role;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgrelay TO role;
--   GRANT USAGE ON ALL SEQUENCES IN SCHEMA pgrelay TO role;
--
-- and a producer
--
--   GRANT USAGE ON SCHEMA pgrelay TO role;
--   GRANT INSERT ON pgrelay.outbox_events TO role;

-- +goose Up

-- Settings that suit a queue:
--
-- fillfactor stays 100. A stamp changes published_at, which the predicates of the
-- pending indexes name, so it is never a HOT update and free space on the page of the
-- old version would buy nothing.
--
-- Every row is updated once, so a fifth of the table, the default, may be millions of
-- dead entries at the front of the pending indexes, where each full look walks over
-- them (0.1 µs each). One hundredth keeps that walk to milliseconds at ten million
-- rows, and vacuum reads only the pages that changed.
CREATE TABLE pgrelay.outbox_events (
    -- CACHE 1: with more, sessions take ids in blocks, and the order of the ids of one
    -- ordering key is no longer that of its transactions.
    id           bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    event_id     uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    event_type   text NOT NULL,
    ordering_key text,
    payload      jsonb NOT NULL,
    headers      jsonb,
    available_at timestamptz, -- null: at once
    -- clock_timestamp: when the row was written, not when its transaction began.
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at timestamptz,
    dead_at      timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- One index for each query that the relay issues. All are partial: they hold pending
-- rows only, so their size is that of the backlog and not of the table. There is none
-- on published_at, which would cost every stamp; retention goes by the primary key.

-- The pass of the poller and the full look.
CREATE INDEX outbox_events_pending ON pgrelay.outbox_events (id)
    WHERE published_at IS NULL AND dead_at IS NULL AND available_at IS NULL;

-- Deferred rows that are due, and when the next one is.
CREATE INDEX outbox_events_deferred ON pgrelay.outbox_events (available_at, id)
    WHERE published_at IS NULL AND dead_at IS NULL AND available_at IS NOT NULL;

-- The first pending row of an ordering key.
CREATE INDEX outbox_events_key_pending ON pgrelay.outbox_events (ordering_key, id)
    WHERE published_at IS NULL AND dead_at IS NULL AND available_at IS NULL
        AND ordering_key IS NOT NULL;

-- The deferred rows of an ordering key that are due.
CREATE INDEX outbox_events_key_deferred ON pgrelay.outbox_events (ordering_key, available_at, id)
    WHERE published_at IS NULL AND dead_at IS NULL AND available_at IS NOT NULL
        AND ordering_key IS NOT NULL;

-- Those that were inserted since the last one of their key was settled.
CREATE INDEX outbox_events_key_deferred_id ON pgrelay.outbox_events (ordering_key, id)
    WHERE published_at IS NULL AND dead_at IS NULL AND available_at IS NOT NULL
        AND ordering_key IS NOT NULL;

-- +goose Down

DROP TABLE pgrelay.outbox_events;
