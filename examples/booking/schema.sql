-- The booking service's own tables. pgrelay adds no column to them.

CREATE TABLE bookings (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  title     text NOT NULL,
  guests    text[] NOT NULL,
  starts_at timestamptz NOT NULL,
  ends_at   timestamptz NOT NULL,
  sequence  int NOT NULL DEFAULT 0         -- counts the changes: calendars ignore what isn't newer
);

CREATE TABLE outbox_events (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_id        uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
  booking_id      bigint NOT NULL REFERENCES bookings,
  event_type      text NOT NULL,
  payload         jsonb NOT NULL,
  status          text NOT NULL DEFAULT 'PENDING'
                  CHECK (status IN ('PENDING', 'PROCESSING', 'PUBLISHED', 'FAILED')),
  attempts        int NOT NULL DEFAULT 0,
  next_attempt_at timestamptz,
  last_error      text,
  claimed_at      timestamptz,
  created_at      timestamptz NOT NULL DEFAULT now()
);

-- As `pgrelay check` advises.
CREATE INDEX ON outbox_events (id) WHERE status = 'PENDING';
CREATE INDEX ON outbox_events (claimed_at) WHERE status = 'PROCESSING';
CREATE INDEX ON outbox_events (booking_id, id) WHERE status IN ('PENDING', 'PROCESSING') AND booking_id IS NOT NULL;

CREATE TABLE processed_events (            -- an event in it does not go out again
  event_id     uuid PRIMARY KEY,
  processed_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE booking_notification_sends (  -- written before a mail is sent, so that nobody gets it twice
  event_id   uuid NOT NULL REFERENCES outbox_events (event_id),
  recipient  text NOT NULL,
  type       text NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT now(),
  sent_at    timestamptz,                  -- NULL: on its way, or nobody knows whether it arrived
  last_error text,
  UNIQUE (event_id, recipient, type)
);
