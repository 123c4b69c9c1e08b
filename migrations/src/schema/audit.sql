-- The audit log and its hash chain. Only triggers and seal_audit() write the chain.

CREATE TABLE audit (
  id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT now(),
  actor    uuid REFERENCES person,
  action   text        NOT NULL,
  subject  text        NOT NULL DEFAULT '',
  detail   jsonb       NOT NULL DEFAULT '{}',
  source   text        NOT NULL DEFAULT 'application' CHECK (source IN ('application', 'database'))
);
CREATE INDEX audit_action ON audit (action, id DESC);
CREATE INDEX audit_actor ON audit (actor, id DESC);
CREATE INDEX audit_application ON audit (id DESC) WHERE source = 'application';
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_subject ON audit (subject, id DESC);
COMMENT ON TABLE audit IS
  'Actions with their actor and time. Append-only; seal_audit() chains the rows.';
COMMENT ON COLUMN audit.actor IS 'NULL: Gantry itself.';
COMMENT ON COLUMN audit.source IS
  'application: written by a use case, with its reasons. database: written by a trigger, with the '
  'changed row.';

CREATE TABLE audit_unsealed (
  audit_id  bigint PRIMARY KEY
);
COMMENT ON TABLE audit_unsealed IS
  'Audit rows that are not in the chain yet. Only guard_audit_queue() and seal_audit() write it.';

CREATE TABLE seal (
  seq        bigint      PRIMARY KEY CHECK (seq > 0),
  audit_id   bigint      NOT NULL REFERENCES audit UNIQUE,
  prev_hash  bytea       NOT NULL CHECK (octet_length(prev_hash) = 32),
  hash       bytea       NOT NULL CHECK (octet_length(hash) = 32) UNIQUE,
  sealed_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE seal IS
  'The hash chain over the audit, written by seal_audit(). hash = sha256(prev_hash || content).';
