-- Descriptions of machines by people, reports and facts by the machines themselves, and their
-- tokens.

ALTER TABLE node
  ADD COLUMN version int NOT NULL DEFAULT 1 CHECK (version > 0),
  ADD COLUMN description text NOT NULL DEFAULT '' CHECK (length(description) <= 1000),
  ADD COLUMN hints jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(hints) = 'object'),
  ADD COLUMN macs text[] NOT NULL DEFAULT '{}' CHECK (cardinality(macs) <= 64),
  ADD COLUMN serial text NOT NULL DEFAULT '' CHECK (length(serial) <= 200),
  ADD COLUMN unavailable_by uuid REFERENCES person,
  ADD COLUMN unavailable_at timestamptz,
  ADD COLUMN unavailable_reason text,
  ADD COLUMN joined_at timestamptz,
  ADD CONSTRAINT node_unavailability_is_whole CHECK (
    (unavailable_at IS NULL) = (unavailable_reason IS NULL) AND (unavailable_at IS NULL OR NOT available));
COMMENT ON COLUMN node.version IS
  'Incremented when a person changes the record. The actual state of the machine does not '
  'change it.';
COMMENT ON COLUMN node.hints IS
  'Input for roles before their first run. Not intent, so the first commit fixes it.';
COMMENT ON COLUMN node.facts IS
  'All facts of node_fact, merged. Facts from roles take precedence over reports of the node.';
COMMENT ON COLUMN node.joined_at IS 'When a worker last checked the running processes of the node.';

CREATE TABLE node_fact (
  node_id   uuid NOT NULL REFERENCES node ON DELETE CASCADE,
  source    text NOT NULL CHECK (source = 'node' OR source LIKE 'role %'),
  facts     jsonb NOT NULL CHECK (jsonb_typeof(facts) = 'object' AND octet_length(facts::text) <= 1048576),
  at        timestamptz NOT NULL DEFAULT now(),
  run_id    bigint REFERENCES run,
  token_id  uuid REFERENCES token,
  PRIMARY KEY (node_id, source),
  CONSTRAINT node_fact_has_a_witness CHECK ((source = 'node') = (run_id IS NULL) AND (run_id IS NULL) <> (token_id IS NULL))
);
COMMENT ON TABLE node_fact IS
  'The facts of a node by source: the node itself, or a role. One row per source, the newest.';

CREATE TABLE node_report (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node_id   uuid NOT NULL REFERENCES node ON DELETE CASCADE,
  at        timestamptz NOT NULL DEFAULT now(),
  kind      text NOT NULL CHECK (kind IN ('startup', 'shutdown', 'bootenv', 'facts')),
  said      text NOT NULL DEFAULT '' CHECK (length(said) <= 200),
  token_id  uuid NOT NULL REFERENCES token,
  address   text NOT NULL DEFAULT '' CHECK (length(address) <= 100)
);
CREATE INDEX node_report_node ON node_report (node_id, id DESC);
COMMENT ON TABLE node_report IS 'The last reports of a node about itself. The oldest are deleted.';

CREATE INDEX token_node ON token (node_id, created_at DESC) WHERE kind = 'node';
