-- For API clients: idempotency keys, workers with a last contact, and indexes for list filters.

CREATE TABLE idempotency (
  person_id     uuid NOT NULL REFERENCES person,
  key           text NOT NULL CHECK (key ~ '^[!-~]{1,255}$'),
  -- SHA-256 of method, path, query and body.
  request       bytea NOT NULL CHECK (octet_length(request) = 32),
  -- The request that executes it now. After a timeout, another request takes over.
  claim         uuid NOT NULL DEFAULT gen_random_uuid(),
  claimed_at    timestamptz NOT NULL DEFAULT now(),
  claimed_until timestamptz NOT NULL,
  status        smallint CHECK (status BETWEEN 200 AND 299),
  headers       jsonb,
  body          bytea CHECK (octet_length(body) <= 65536),
  withheld      text CHECK (withheld IN ('secret', 'large')),
  PRIMARY KEY (person_id, key),
  CONSTRAINT idempotency_answer_is_whole CHECK (
    CASE WHEN status IS NULL THEN headers IS NULL AND body IS NULL AND withheld IS NULL
         ELSE headers IS NOT NULL AND (body IS NULL) = (withheld IS NOT NULL) END)
);
CREATE INDEX idempotency_age ON idempotency (claimed_at);
COMMENT ON TABLE idempotency IS
  'Responses to requests with an idempotency key, for 24 hours. status NULL: the request is '
  'still running.';

ALTER TABLE worker ADD COLUMN heard_at timestamptz NOT NULL DEFAULT now();
COMMENT ON COLUMN worker.heard_at IS 'When the worker last renewed its lease.';
CREATE INDEX worker_started ON worker (started_at DESC, id DESC);

-- Lists start with the newest row, so each filter column is indexed with the id.
CREATE INDEX run_outcome ON run (outcome, id DESC) WHERE outcome IS NOT NULL;
CREATE INDEX run_lane ON run (lane_id, id DESC);
CREATE INDEX run_queued_at ON run (queued_at, id);
CREATE INDEX noderole_role ON noderole (role);
CREATE INDEX node_dead ON node (fqdn) WHERE NOT alive AND removed_in IS NULL;
CREATE INDEX node_out_of_service ON node (fqdn) WHERE NOT available AND removed_in IS NULL;
CREATE INDEX audit_action ON audit (action, id DESC);
CREATE INDEX audit_subject ON audit (subject, id DESC);

-- For the progress of a target.
CREATE INDEX step_generation ON step (generation);
