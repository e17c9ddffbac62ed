-- The consumer's database.

CREATE TABLE processed (          -- what has taken effect; keep it longer than anybody might send an event again
  event_id     text PRIMARY KEY,
  processed_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE rooms (              -- what the events have an effect on
  name   text PRIMARY KEY,
  guests int NOT NULL DEFAULT 0
);
