-- The history of the desired state, the target in force, and the policies of the gate.

CREATE TABLE policy (
  number            bigint      PRIMARY KEY CHECK (number > 0),
  hash              bytea       NOT NULL REFERENCES object,
  blueprint_number  bigint      NOT NULL UNIQUE,
  created_by        uuid REFERENCES person,
  created_at        timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE policy IS
  'Versions of the gate''s policy. The current one is head.policy_number. Append-only.';
COMMENT ON COLUMN policy.blueprint_number IS
  'The blueprint that introduced the policy. Set by guard_policy().';

CREATE TABLE blueprint (
  number        bigint      PRIMARY KEY,
  parent        bigint REFERENCES blueprint UNIQUE,
  kind          text        NOT NULL CHECK (kind IN ('genesis', 'change', 'switch')),
  root          bytea       NOT NULL REFERENCES object,
  review_id     bigint UNIQUE,
  enabled       boolean     NOT NULL,
  epoch         bigint      NOT NULL CHECK (epoch > 0),
  reason        text,
  committed_by  uuid REFERENCES person,
  committed_at  timestamptz NOT NULL DEFAULT now(),
  xid           xid8        NOT NULL DEFAULT pg_current_xact_id(),
  CONSTRAINT blueprint_change_has_review CHECK ((kind = 'change') = (review_id IS NOT NULL)),
  CONSTRAINT blueprint_follows_parent CHECK (number = coalesce(parent, 0) + 1),
  CONSTRAINT blueprint_genesis_is_first CHECK ((kind = 'genesis') = (parent IS NULL))
);
CREATE INDEX blueprint_xid ON blueprint (xid);
COMMENT ON TABLE blueprint IS
  'The blueprints, one for each commit or switch. The target is the blueprint in force. '
  'Append-only. guard_blueprint() checks every insert.';
COMMENT ON COLUMN blueprint.kind IS
  'genesis: the first. change: the commit of a review. switch: execution was enabled or disabled.';
COMMENT ON COLUMN blueprint.root IS 'The object with the hashes of all documents.';
COMMENT ON COLUMN blueprint.enabled IS 'Whether steps may run.';
COMMENT ON COLUMN blueprint.xid IS 'The transaction that committed it, for the projection check.';
ALTER TABLE policy ADD CONSTRAINT policy_blueprint_number_fkey
  FOREIGN KEY (blueprint_number) REFERENCES blueprint(number);

CREATE TABLE head (
  singleton      boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  number         bigint  NOT NULL DEFAULT 0 CHECK (number >= 0),
  enabled        boolean NOT NULL DEFAULT true,
  policy_number  bigint  NOT NULL DEFAULT 0 CHECK (policy_number >= 0),
  epoch          bigint  NOT NULL DEFAULT 1 CHECK (epoch > 0)
);
INSERT INTO head DEFAULT VALUES;
COMMENT ON TABLE head IS
  'One row: the number of the target (the blueprint in force), the execution switch, the policy in '
  'force and the epoch.';
COMMENT ON COLUMN head.epoch IS
  'Raised by a restore. Reviews and runs of earlier epochs are invalid.';

CREATE TABLE projected (
  blueprint_number  bigint NOT NULL REFERENCES blueprint,
  xid               xid8   NOT NULL
);
COMMENT ON TABLE projected IS
  'The last commit whose rows were compared with its documents. Its transaction cannot change '
  'intent after that.';
