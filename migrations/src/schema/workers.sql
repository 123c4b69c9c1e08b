-- Workers, the database roles, and the version of the guards.

CREATE TABLE worker (
  id                 uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  name               text        NOT NULL UNIQUE,
  phase              text        NOT NULL DEFAULT 'none'
      CHECK (phase IN ('none', 'welcomed', 'integrated', 'finalized', 'confirmed', 'nack')),
  capacity           int         NOT NULL DEFAULT 0 CHECK (capacity >= 0),
  jigs               text[]      NOT NULL DEFAULT '{}',
  host               text        NOT NULL DEFAULT '',
  pid                int,
  version            text        NOT NULL DEFAULT '',
  reason             text,
  lease_until        timestamptz NOT NULL,
  started_at         timestamptz NOT NULL DEFAULT now(),
  last_heartbeat_at  timestamptz NOT NULL DEFAULT now(),
  secrets            jsonb       NOT NULL DEFAULT '[]',
  drain_by           uuid        REFERENCES person,
  drain_since        timestamptz,
  drain_reason       text        CHECK (char_length(drain_reason) <= 1000),
  CONSTRAINT worker_secrets_are_a_list CHECK (
    jsonb_typeof(secrets) = 'array' AND jsonb_array_length(secrets) <= 1000),
  CONSTRAINT worker_drain_is_complete CHECK (
    num_nonnulls(drain_by, drain_since, drain_reason) IN (0, 3))
);
CREATE INDEX worker_lease ON worker (lease_until);
CREATE INDEX worker_started ON worker (started_at DESC, id DESC);
COMMENT ON TABLE worker IS 'The workers. A row remains after the worker ended.';
COMMENT ON COLUMN worker.phase IS
  'How far the join of the worker is. Only confirmed workers lease runs.';
COMMENT ON COLUMN worker.capacity IS 'The number of runs that it executes at once.';
COMMENT ON COLUMN worker.jigs IS 'The jig classes that the worker supports.';
COMMENT ON COLUMN worker.reason IS 'Why the worker was rejected (nack).';
COMMENT ON COLUMN worker.last_heartbeat_at IS 'When the worker last renewed its lease.';
COMMENT ON COLUMN worker.secrets IS
  'Names, versions and descriptors of the secrets in the worker''s folder.';
COMMENT ON COLUMN worker.drain_since IS
  'Since when the worker takes no further runs. It finishes the runs that it has. NULL: it is not '
  'draining, and neither are drain_by and drain_reason set.';
ALTER TABLE run ADD CONSTRAINT run_worker_id_fkey
  FOREIGN KEY (worker_id) REFERENCES worker(id);

CREATE TABLE background_task (
  process_id    uuid        NOT NULL,
  process_kind  text        NOT NULL CHECK (process_kind IN ('server', 'worker')),
  process       text        NOT NULL CHECK (char_length(process) <= 500),
  task          text        NOT NULL CHECK (char_length(task) <= 100),
  purpose       text        NOT NULL CHECK (char_length(purpose) <= 500),
  period_ms     bigint      NOT NULL CHECK (period_ms >= 0),
  started_at    timestamptz,
  ended_at      timestamptz,
  duration_ms       bigint      CHECK (duration_ms >= 0),
  outcome       text        CHECK (char_length(outcome) <= 500),
  error         text        CHECK (char_length(error) <= 500),
  failures      int         NOT NULL DEFAULT 0 CHECK (failures >= 0),
  due_at        timestamptz,
  lease_until   timestamptz NOT NULL,
  PRIMARY KEY (process_id, task)
) WITH (fillfactor = 50);
COMMENT ON TABLE background_task IS
  'The background tasks of each server and worker. The rows of a process are deleted when it ends.';
COMMENT ON COLUMN background_task.process_id IS
  'Generated at each start of the process. Without a foreign key, because servers have no row.';
COMMENT ON COLUMN background_task.started_at IS 'The start of the current or last run.';
COMMENT ON COLUMN background_task.ended_at IS
  'The end of the last run. duration_ms, outcome and error belong to the same run.';
COMMENT ON COLUMN background_task.failures IS 'Failed runs since the last success.';
COMMENT ON COLUMN background_task.due_at IS 'The start of the next run. NULL during a run.';
COMMENT ON COLUMN background_task.lease_until IS
  'When the row expires. The process renews it while it runs.';

CREATE TABLE server_address (
  address  text        PRIMARY KEY CHECK (char_length(address) BETWEEN 2 AND 45),
  seen_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX server_address_seen ON server_address (seen_at);
COMMENT ON TABLE server_address IS
  'The addresses of hosts with a server. Workers do not connect to them.';
COMMENT ON COLUMN server_address.address IS 'As PostgreSQL prints an inet without a mask.';
COMMENT ON COLUMN server_address.seen_at IS
  'When a server last reported it. Rows are deleted some minutes later.';

CREATE TABLE database_role (
  purpose  text PRIMARY KEY CHECK (purpose IN ('server', 'worker', 'metrics')),
  name     name NOT NULL UNIQUE
);
COMMENT ON TABLE database_role IS 'The roles that the last migration granted privileges to.';

CREATE TABLE guard_version (
  singleton   boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
  hash        bytea       NOT NULL,
  applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE guard_version IS 'SHA-256 of the guards that were last applied.';
