-- The result of each address in a health check, and the versions with which the check began. An
-- outdated check has no effect.

ALTER TABLE node
  ADD COLUMN way_no int NOT NULL DEFAULT 0 CHECK (way_no >= 0),
  ADD COLUMN word_no int NOT NULL DEFAULT 0 CHECK (word_no >= 0);
COMMENT ON COLUMN node.way_no IS 'Raised whenever it is reached otherwise: what a look found by another way is nothing about this node.';
COMMENT ON COLUMN node.word_no IS 'Raised whenever it reports a start-up or shutdown: what a look before that found running may run no more.';

ALTER TABLE node_look
  ADD COLUMN tried jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(tried) = 'array' AND jsonb_array_length(tried) <= 8);
COMMENT ON COLUMN node_look.tried IS 'Of each address that was tried {address, reached, said}: said is why it let nobody in (api::nodes::TriedAddress).';
