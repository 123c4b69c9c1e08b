-- Nodes: records, facts, health checks and reports.

CREATE TABLE node (
  id                    uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  fqdn                  text        NOT NULL
      CHECK (octet_length(fqdn) <= 253
        AND fqdn ~ '^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.){2,}[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  deployment_id         uuid        NOT NULL REFERENCES deployment DEFERRABLE,
  phantom               boolean     NOT NULL DEFAULT false,
  doc                   bytea REFERENCES object,
  removed_in            bigint REFERENCES blueprint,
  transport             text        NOT NULL DEFAULT 'ssh'
      CHECK (transport IN ('none', 'local', 'ssh')),
  address               jsonb       NOT NULL DEFAULT '[]',
  connection            jsonb       NOT NULL DEFAULT '{}',
  connection_no         int         NOT NULL DEFAULT 0 CHECK (connection_no >= 0),
  root                  text        GENERATED ALWAYS AS (
      CASE WHEN transport = 'local'
           THEN nullif(rtrim(regexp_replace(connection ->> 'root', '/+', '/', 'g'), '/'), '')
      END) STORED,
  hints                 jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(hints) = 'object'),
  macs                  text[]      NOT NULL DEFAULT '{}' CHECK (cardinality(macs) <= 64),
  serial                text        NOT NULL DEFAULT '' CHECK (length(serial) <= 200),
  description           text        NOT NULL DEFAULT '' CHECK (length(description) <= 1000),
  version               int         NOT NULL DEFAULT 1 CHECK (version > 0),
  created_by            uuid REFERENCES person,
  created_at            timestamptz NOT NULL DEFAULT now(),
  alive                 boolean     NOT NULL DEFAULT false,
  alive_since           timestamptz,
  last_seen_at          timestamptz,
  health_checked_at     timestamptz,
  contradicting_checks  int         NOT NULL DEFAULT 0 CHECK (contradicting_checks >= 0),
  boot_id               text,
  bootenv               text,
  report_no             int         NOT NULL DEFAULT 0 CHECK (report_no >= 0),
  joined                text        NOT NULL DEFAULT 'none'
      CHECK (joined IN ('none', 'welcomed', 'integrated', 'finalized', 'confirmed', 'nack')),
  joined_at             timestamptz,
  available             boolean     NOT NULL DEFAULT true,
  unavailable_by        uuid REFERENCES person,
  unavailable_at        timestamptz,
  unavailable_reason    text,
  facts                 jsonb       NOT NULL DEFAULT '{}',
  facts_at              timestamptz,
  CONSTRAINT node_phantom_has_no_transport CHECK (NOT phantom OR transport = 'none'),
  CONSTRAINT node_phantom_is_up CHECK (NOT phantom OR (alive AND available)),
  CONSTRAINT node_unavailability_is_complete CHECK (
    (unavailable_at IS NULL) = (unavailable_reason IS NULL)
    AND (unavailable_at IS NULL OR NOT available))
);
CREATE INDEX node_address ON node USING gin (((lower(address::text))::jsonb))
  WHERE transport = 'ssh' AND removed_in IS NULL;
CREATE INDEX node_bare ON node (fqdn) WHERE doc IS NULL AND removed_in IS NULL;
CREATE INDEX node_by_deployment ON node (deployment_id, fqdn)
  WHERE NOT phantom AND removed_in IS NULL;
CREATE INDEX node_by_state ON node (
    (CASE WHEN NOT alive THEN 0 WHEN NOT available THEN 1 ELSE 2 END), fqdn)
  WHERE NOT phantom AND removed_in IS NULL;
CREATE INDEX node_check_due ON node (health_checked_at NULLS FIRST)
  WHERE transport = 'ssh' AND removed_in IS NULL;
CREATE INDEX node_dead ON node (fqdn) WHERE NOT alive AND removed_in IS NULL;
CREATE INDEX node_deployment ON node (deployment_id);
CREATE UNIQUE INDEX node_fqdn ON node (fqdn) WHERE removed_in IS NULL;
CREATE INDEX node_in_maintenance ON node (fqdn) WHERE NOT available AND removed_in IS NULL;
CREATE INDEX node_macs ON node USING gin (macs) WHERE macs <> '{}' AND removed_in IS NULL;
CREATE INDEX node_root ON node (root) WHERE root IS NOT NULL AND removed_in IS NULL;
COMMENT ON TABLE node IS
  'Machines and phantom nodes. Columns that describe the desired state are copies of the document; '
  'the others are progress.';
COMMENT ON COLUMN node.phantom IS
  'A node without a machine, which has the services of its deployment.';
COMMENT ON COLUMN node.doc IS
  'NULL: a bare record without intent. Such rows are added and removed without a review.';
COMMENT ON COLUMN node.removed_in IS
  'The blueprint that removed the node. For a bare record: the target when it was removed.';
COMMENT ON COLUMN node.transport IS
  'How a worker reaches the node. If the node has a document, this is a copy (guard_node_record).';
COMMENT ON COLUMN node.address IS
  'The addresses at which a worker reaches the node. If the node has a document, this is a copy '
  '(guard_node_record).';
COMMENT ON COLUMN node.connection IS
  'The root folder of a local node, or root, port, user, key reference and host key for SSH. If '
  'the node has a document, this is a copy (guard_node_record).';
COMMENT ON COLUMN node.connection_no IS
  'Incremented when the connection changes. Health checks over an earlier connection do not count.';
COMMENT ON COLUMN node.root IS
  'The root folder of a local node. Folders of nodes may not overlap, because these would share '
  'locks, ledgers and services.';
COMMENT ON COLUMN node.hints IS
  'Input for roles before their first run. If the node has a document, this is a copy '
  '(guard_node_record).';
COMMENT ON COLUMN node.macs IS
  'The MAC addresses of the node in the form 00:25:90:aa:00:01 (engine::cluster::mac_address).';
COMMENT ON COLUMN node.version IS
  'Incremented when a person changes the record. The actual state of the machine does not change '
  'it.';
COMMENT ON COLUMN node.health_checked_at IS
  'When the last health check ended or began. NULL: check as soon as possible.';
COMMENT ON COLUMN node.contradicting_checks IS
  'The number of consecutive health checks that contradict alive. A report counts as all but the '
  'last of them (engine::alive).';
COMMENT ON COLUMN node.bootenv IS 'The boot environment that the node last reported.';
COMMENT ON COLUMN node.report_no IS
  'Incremented when the node reports a startup or shutdown. Processes that an earlier health check '
  'found may have ended.';
COMMENT ON COLUMN node.joined IS
  'How far the join of the node is, as in a cluster: welcomed to confirmed, or nack.';
COMMENT ON COLUMN node.joined_at IS 'When a worker last checked the running processes of the node.';
COMMENT ON COLUMN node.available IS 'False: in maintenance. Its steps do not start.';
COMMENT ON COLUMN node.facts IS
  'All facts of node_fact, merged. Facts from roles take precedence over reports of the node.';
ALTER TABLE token ADD CONSTRAINT token_node_id_fkey
  FOREIGN KEY (node_id) REFERENCES node(id);
ALTER TABLE deployment ADD CONSTRAINT deployment_phantom
  FOREIGN KEY (phantom) REFERENCES node(id) DEFERRABLE INITIALLY DEFERRED;

CREATE TABLE node_fact (
  node_id   uuid        NOT NULL REFERENCES node ON DELETE CASCADE,
  source    text        NOT NULL CHECK (source = 'node' OR (source LIKE 'role %')),
  facts     jsonb       NOT NULL
      CHECK (jsonb_typeof(facts) = 'object' AND octet_length(facts::text) <= 1048576),
  at        timestamptz NOT NULL DEFAULT now(),
  run_id    bigint,
  token_id  uuid REFERENCES token,
  PRIMARY KEY (node_id, source),
  CONSTRAINT node_fact_has_a_witness CHECK (
    (source = 'node') = (run_id IS NULL) AND (run_id IS NULL) <> (token_id IS NULL))
);
COMMENT ON TABLE node_fact IS
  'The facts of a node by source: the node itself, or a role. One row per source, the newest.';
COMMENT ON COLUMN node_fact.run_id IS 'The run that returned the facts of a role.';
COMMENT ON COLUMN node_fact.token_id IS 'The token with which the node reported.';

CREATE TABLE health_check (
  node_id        uuid        NOT NULL REFERENCES node ON DELETE CASCADE,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  reached        boolean     NOT NULL,
  address        text        NOT NULL DEFAULT '' CHECK (length(address) <= 300),
  attempts       jsonb       NOT NULL DEFAULT '[]'
      CHECK (jsonb_typeof(attempts) = 'array' AND jsonb_array_length(attempts) <= 8),
  detail         text        NOT NULL DEFAULT '' CHECK (length(detail) <= 2000),
  duration_ms        int         NOT NULL CHECK (duration_ms >= 0),
  by             text        NOT NULL,
  connection_no  int         NOT NULL DEFAULT 0 CHECK (connection_no >= 0),
  PRIMARY KEY (node_id, at)
);
COMMENT ON TABLE health_check IS
  'The results of the last health checks of a node. The oldest are deleted.';
COMMENT ON COLUMN health_check.attempts IS
  'The addresses that were tried: {address, reached, said}. said is the reason for the failure '
  '(api::nodes::TriedAddress).';
COMMENT ON COLUMN health_check.detail IS 'Why the health check failed.';
COMMENT ON COLUMN health_check.by IS 'The name of the worker.';
COMMENT ON COLUMN health_check.connection_no IS
  'node.connection_no at the time of the health check, set by guard_health_check_connection.';

CREATE TABLE node_report (
  id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node_id   uuid        NOT NULL REFERENCES node ON DELETE CASCADE,
  at        timestamptz NOT NULL DEFAULT now(),
  kind      text        NOT NULL CHECK (kind IN ('startup', 'shutdown', 'bootenv', 'facts')),
  detail    text        NOT NULL DEFAULT '' CHECK (length(detail) <= 200),
  token_id  uuid        NOT NULL REFERENCES token,
  address   text        NOT NULL DEFAULT '' CHECK (length(address) <= 100)
);
CREATE INDEX node_report_node ON node_report (node_id, id DESC);
COMMENT ON TABLE node_report IS 'The last reports of a node about itself. The oldest are deleted.';
COMMENT ON COLUMN node_report.detail IS 'A short description of the report.';
