-- What people look at. The mark wins over the bookkeeping: a row whose published_at and
-- dead_at are null is pending, and a failures row that calls it dead is stale (the next
-- claim resets it), so both views leave it out.

-- +goose Up

-- The claims are searched through a subquery that doesn't depend on the row: it is
-- unnested once and hashed, and not searched again for each row.
CREATE VIEW pgrelay.outbox_event_status AS
SELECT o.*,
    CASE
        WHEN o.published_at IS NOT NULL THEN 'PUBLISHED'
        WHEN o.dead_at IS NOT NULL AND f.uncertain THEN 'UNCERTAIN'
        WHEN o.dead_at IS NOT NULL THEN 'DEAD'
        WHEN c.row_id IS NOT NULL THEN 'PROCESSING'
        WHEN f.attempts > 0 OR f.unknowns > 0 THEN 'RETRYING'
        WHEN o.available_at > now() THEN 'DEFERRED'
        ELSE 'PENDING'
    END AS status,
    coalesce(f.attempts, 0) AS attempts,
    f.next_attempt_at,
    concat_ws(': ', nullif(f.reason, ''), nullif(f.detail, '')) AS last_error
FROM pgrelay.outbox_events o
LEFT JOIN pgrelay.failures f
    ON f.outbox = 'pgrelay.outbox_events' AND f.row_id = o.id::text
    AND o.published_at IS NULL AND (f.dead_at IS NULL) = (o.dead_at IS NULL)
LEFT JOIN (
    SELECT DISTINCT unnest(ids) AS row_id FROM pgrelay.claims WHERE outbox = 'pgrelay.outbox_events'
) c ON c.row_id = o.id::text;

-- The dead letters of all outboxes. Only of our own table can a view see the mark. An
-- uncertain message is none: it may have arrived, and sending it again is for a person
-- to decide.
CREATE VIEW pgrelay.dead_letters AS
SELECT f.outbox, f.row_id, f.event_id, f.kind, f.attempts, f.reason, f.detail, f.since, f.dead_at
FROM pgrelay.failures f
WHERE f.dead_at IS NOT NULL AND NOT f.uncertain
    AND NOT EXISTS (
        SELECT FROM pgrelay.outbox_events o
        WHERE o.id = CASE WHEN f.outbox = 'pgrelay.outbox_events' THEN f.row_id::bigint END
            AND o.dead_at IS NULL
    );

-- +goose Down

DROP VIEW pgrelay.dead_letters;
DROP VIEW pgrelay.outbox_event_status;
