-- The result of each address in a health check, and the versions with which the check began. An
-- outdated check has no effect.

ALTER TABLE node
  ADD COLUMN way_no int NOT NULL DEFAULT 0 CHECK (way_no >= 0),
  ADD COLUMN word_no int NOT NULL DEFAULT 0 CHECK (word_no >= 0);
COMMENT ON COLUMN node.way_no IS
  'Incremented when the connection changes. Health checks over an earlier connection do not count.';
COMMENT ON COLUMN node.word_no IS
  'Incremented when the node reports a startup or shutdown. Processes that an earlier health '
  'check found may have ended.';

ALTER TABLE node_look
  ADD COLUMN tried jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(tried) = 'array' AND jsonb_array_length(tried) <= 8);
COMMENT ON COLUMN node_look.tried IS
  'The addresses that were tried: {address, reached, said}. said is the reason for the failure '
  '(api::nodes::TriedAddress).';
