-- Node-scoped proposals, and reviews that were replanned after their base changed.

-- The scope of a proposal is a deployment, or one node in it.
ALTER TABLE proposal
  DROP CONSTRAINT proposal_node_scope,
  ADD CONSTRAINT proposal_node_scope CHECK ((kind = 'node_scoped') = (node_id IS NOT NULL) OR kind = 'discovery');
CREATE UNIQUE INDEX proposal_one_for_node ON proposal (node_id) WHERE state = 'open' AND kind = 'node_scoped';
CREATE INDEX proposal_open ON proposal (id) WHERE state = 'open';
COMMENT ON COLUMN proposal.node_id IS
  'The only node that the proposal may change. deployment_id is then the deployment of that '
  'node when the proposal was opened.';

-- Lets foreign keys below require the same proposal.
ALTER TABLE submission ADD CONSTRAINT submission_of_proposal UNIQUE (id, proposal_id);

CREATE TABLE replan (
  before_id    bigint PRIMARY KEY,
  proposal_id  bigint NOT NULL REFERENCES proposal,
  after_id     bigint UNIQUE,
  version      int NOT NULL CHECK (version > 1),
  target       bigint NOT NULL REFERENCES target,
  moved        text[] NOT NULL DEFAULT '{}',
  refused      jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(refused) = 'array'),
  at           timestamptz NOT NULL DEFAULT now(),
  UNIQUE (proposal_id, version),
  CONSTRAINT replan_before FOREIGN KEY (before_id, proposal_id) REFERENCES submission (id, proposal_id),
  CONSTRAINT replan_after FOREIGN KEY (after_id, proposal_id) REFERENCES submission (id, proposal_id),
  CONSTRAINT replan_goes_on CHECK (before_id < after_id),
  CONSTRAINT replan_came_to_one CHECK ((after_id IS NULL) = (refused <> '[]'))
);
COMMENT ON TABLE replan IS
  'A review whose base changed, and the result of replanning it. Append-only, one row per review.';
COMMENT ON COLUMN replan.after_id IS 'NULL: the proposal was sent back to its authors.';
COMMENT ON COLUMN replan.version IS 'The version of the proposal after the replan.';
