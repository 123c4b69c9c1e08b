-- The source of each audit row, and the rows that are not sealed yet.

ALTER TABLE audit
  ADD COLUMN source text NOT NULL DEFAULT 'application' CHECK (source IN ('application', 'database'));
COMMENT ON COLUMN audit.source IS
  'application: written by a use case, with its reasons. database: written by a trigger, with '
  'the changed row.';
CREATE INDEX audit_application ON audit (id DESC) WHERE source = 'application';

CREATE TABLE audit_unsealed (audit_id bigint PRIMARY KEY);
COMMENT ON TABLE audit_unsealed IS
  'Audit rows that are not in the chain yet. Only guard_audit_queue() and seal_audit() write it.';
INSERT INTO audit_unsealed SELECT a.id FROM audit a WHERE NOT EXISTS (SELECT FROM seal s WHERE s.audit_id = a.id);

CREATE TABLE audit_baseline (
  singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  at         timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE audit_baseline IS
  'When rows that are older than the audit triggers got their audit rows. This happens once.';

-- An export lists the runs of each target.
CREATE INDEX run_target ON run (target_number, id);
