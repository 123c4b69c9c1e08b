-- The journal of events, which pages and workers follow.

CREATE TABLE event (
  id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  xid      xid8        NOT NULL DEFAULT pg_current_xact_id(),
  at       timestamptz NOT NULL DEFAULT now(),
  topic    text        NOT NULL,
  subject  text        NOT NULL DEFAULT '',
  kind     text        NOT NULL,
  body     jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX event_at ON event (at);
CREATE INDEX event_journal ON event (xid, id);
COMMENT ON TABLE event IS
  'The journal. Readers use the order (xid, id) and stay below '
  'pg_snapshot_xmin(pg_current_snapshot()). Otherwise an event could appear at an earlier '
  'position.';

CREATE TABLE event_cutoff (
  singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  xid       xid8    NOT NULL,
  id        bigint  NOT NULL
);
INSERT INTO event_cutoff (xid, id) VALUES ('0', 0);
COMMENT ON TABLE event_cutoff IS 'The last deleted position, in the order of the journal.';
