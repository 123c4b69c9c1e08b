-- Edits that are not submitted yet, or that were submitted and committed.

CREATE TABLE proposal (
  id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  deployment_id  uuid        NOT NULL REFERENCES deployment,
  node_id        uuid REFERENCES node,
  kind           text        NOT NULL DEFAULT 'personal'
      CHECK (kind IN ('personal', 'node_scoped', 'autopilot', 'discovery')),
  title          text        NOT NULL DEFAULT '' CHECK (length(title) <= 200),
  state          text        NOT NULL DEFAULT 'open'
      CHECK (state IN ('open', 'committed', 'discarded')),
  version        int         NOT NULL DEFAULT 0 CHECK (version >= 0),
  created_by     uuid        NOT NULL REFERENCES person,
  created_at     timestamptz NOT NULL DEFAULT now(),
  updated_at     timestamptz NOT NULL DEFAULT now(),
  closed_at      timestamptz,
  CONSTRAINT proposal_node_scope CHECK (
    (kind = 'node_scoped') = (node_id IS NOT NULL) OR kind = 'discovery')
);
CREATE INDEX proposal_deployment ON proposal (deployment_id, id DESC);
CREATE UNIQUE INDEX proposal_one_for_node ON proposal (node_id)
  WHERE state = 'open' AND kind = 'node_scoped';
CREATE UNIQUE INDEX proposal_one_personal ON proposal (deployment_id)
  WHERE state = 'open' AND kind = 'personal';
CREATE INDEX proposal_open ON proposal (id) WHERE state = 'open';
COMMENT ON TABLE proposal IS
  'A list of edits of a deployment or node. It is submitted for review and committed.';
COMMENT ON COLUMN proposal.node_id IS
  'The only node that the proposal may change. deployment_id is then the deployment of that node '
  'when the proposal was opened.';
COMMENT ON COLUMN proposal.version IS 'Incremented by every edit, undo, redo and replan.';

CREATE TABLE edit (
  proposal_id  bigint      NOT NULL REFERENCES proposal,
  seq          int         NOT NULL CHECK (seq > 0),
  actor        uuid        NOT NULL REFERENCES person,
  at           timestamptz NOT NULL DEFAULT now(),
  body         jsonb       NOT NULL,
  undone       boolean     NOT NULL DEFAULT false,
  dropped      boolean     NOT NULL DEFAULT false,
  touched_by   uuid[]      NOT NULL DEFAULT '{}',
  request_seq  int         CHECK (request_seq > 0 AND request_seq < seq),
  PRIMARY KEY (proposal_id, seq),
  CONSTRAINT edit_dropped_is_undone CHECK (undone OR NOT dropped)
);
CREATE INDEX edit_sets ON edit (
    (body ->> 'edit'), coalesce(body ->> 'node', body ->> 'deployment'),
    coalesce(body ->> 'noderole', body ->> 'role'), proposal_id DESC, seq DESC)
  WHERE body ->> 'edit' IN ('set_noderole_data', 'set_role_data') AND NOT undone;
COMMENT ON TABLE edit IS 'The edits of a proposal. Undo and redo change only undone and dropped.';
COMMENT ON COLUMN edit.actor IS
  'The author. People who undo or redo an edit count as authors too (touched_by).';
COMMENT ON COLUMN edit.body IS 'In the format engine::plan::Edit.';
COMMENT ON COLUMN edit.request_seq IS
  'The first edit of the same request, if this is a later one. Undo and redo take them together.';
COMMENT ON COLUMN edit.dropped IS 'Another edit was made after this one was undone. Redo skips it.';

CREATE TABLE not_restored (
  proposal_id       bigint NOT NULL,
  first_edit        int    NOT NULL,
  last_edit         int    NOT NULL,
  blueprint_number  bigint NOT NULL REFERENCES blueprint,
  missing           text[] NOT NULL
      CHECK (cardinality(missing) >= 1 AND cardinality(missing) <= 200),
  more              int    NOT NULL DEFAULT 0 CHECK (more >= 0),
  PRIMARY KEY (proposal_id, first_edit),
  CONSTRAINT not_restored_edits_rise CHECK (last_edit >= first_edit),
  FOREIGN KEY (proposal_id, first_edit) REFERENCES edit(proposal_id, seq),
  FOREIGN KEY (proposal_id, last_edit) REFERENCES edit(proposal_id, seq)
);
COMMENT ON TABLE not_restored IS
  'Parts that a restore omits. Valid while one of the restoring edits is valid. Append-only.';
COMMENT ON COLUMN not_restored.blueprint_number IS
  'The blueprint that the restore takes the parts from.';
COMMENT ON COLUMN not_restored.more IS 'The number of omitted parts that are not listed.';
