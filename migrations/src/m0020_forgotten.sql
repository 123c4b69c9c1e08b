-- The position up to which the journal was deleted. The remaining events do not show it. Positions
-- are ordered by transaction first, so the first event written need not be the first in order. It
-- may be uncommitted while later ones are read.

CREATE TABLE event_forgotten (
  only_one  boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  xid       xid8 NOT NULL,
  id        bigint NOT NULL
);
COMMENT ON TABLE event_forgotten IS 'The last deleted position, in the order of the journal.';
INSERT INTO event_forgotten (xid, id)
SELECT coalesce(oldest.xid, '0'), coalesce(oldest.id - 1, 0)
FROM (SELECT) one LEFT JOIN LATERAL (SELECT xid, id FROM event WHERE id > 1 ORDER BY xid, id LIMIT 1) oldest
  ON NOT EXISTS (SELECT FROM event WHERE id = 1);
