-- Health checks of nodes: which node is due, and the results.

ALTER TABLE node
  ADD COLUMN looked_at timestamptz,
  ADD COLUMN look_against int NOT NULL DEFAULT 0 CHECK (look_against >= 0);
COMMENT ON COLUMN node.looked_at IS
  'When the last health check ended or began. NULL: check as soon as possible.';
COMMENT ON COLUMN node.look_against IS
  'The number of consecutive health checks that contradict alive (engine::alive).';
-- Workers query the due nodes every second. A local node is as alive as its machine and never due.
CREATE INDEX node_due ON node (looked_at NULLS FIRST) WHERE transport = 'ssh' AND removed_in IS NULL;

CREATE TABLE node_look (
  node_id   uuid NOT NULL REFERENCES node ON DELETE CASCADE,
  at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  reached   boolean NOT NULL,
  address   text NOT NULL DEFAULT '' CHECK (length(address) <= 300),
  said      text NOT NULL DEFAULT '' CHECK (length(said) <= 2000),
  took_ms   int NOT NULL CHECK (took_ms >= 0),
  by        text NOT NULL,
  PRIMARY KEY (node_id, at)
);
COMMENT ON TABLE node_look IS
  'The results of the last health checks of a node. The oldest are deleted.';
COMMENT ON COLUMN node_look.said IS 'Why the health check failed.';
