-- The transaction that ended a run. Guards allow its step to move and its result to be applied only
-- in that transaction.

ALTER TABLE run ADD COLUMN ended_xid xid8;
COMMENT ON COLUMN run.ended_xid IS
  'The transaction that ended the run, written by a trigger. NULL: the run is open, or it '
  'ended before this column existed.';

-- At most one row, because commits are serialized.
CREATE TABLE projected (
  number  bigint NOT NULL REFERENCES target,
  xid     xid8 NOT NULL
);
COMMENT ON TABLE projected IS
  'The last commit whose rows were compared with its documents. Its transaction cannot change '
  'intent after that.';
