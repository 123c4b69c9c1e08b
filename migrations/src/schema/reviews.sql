-- Submitted proposals: verdicts, signatures, threads, and what people have viewed.

CREATE TABLE review (
  id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  proposal_id       bigint      NOT NULL REFERENCES proposal,
  version           int         NOT NULL CHECK (version > 0),
  title             text        NOT NULL DEFAULT '' CHECK (length(title) <= 200),
  change_hash       bytea       NOT NULL CHECK (octet_length(change_hash) = 32),
  effects_hash      bytea       NOT NULL CHECK (octet_length(effects_hash) = 32),
  policy_number     bigint      NOT NULL REFERENCES policy,
  new_policy_hash   bytea REFERENCES object,
  approvals_needed  int         NOT NULL CHECK (approvals_needed >= 1),
  epoch             bigint      NOT NULL CHECK (epoch > 0),
  root_hash         bytea       NOT NULL REFERENCES object,
  summary           jsonb       NOT NULL DEFAULT '{}',
  risk              text[]      NOT NULL DEFAULT '{}',
  created_by        uuid        NOT NULL REFERENCES person,
  created_at        timestamptz NOT NULL DEFAULT now(),
  xid               xid8        NOT NULL DEFAULT pg_current_xact_id(),
  CONSTRAINT review_of_proposal UNIQUE (id, proposal_id),
  UNIQUE (proposal_id, version)
);
CREATE INDEX review_by_title ON review (title, id);
COMMENT ON TABLE review IS 'A version of a proposal, submitted for review. Append-only.';
COMMENT ON COLUMN review.change_hash IS
  'The hash of the documents that change. Verdicts and the commit are about this hash.';
COMMENT ON COLUMN review.effects_hash IS 'The hash of the steps that the change starts or ends.';
COMMENT ON COLUMN review.new_policy_hash IS
  'The policy that this change puts into force. NULL: none.';
COMMENT ON COLUMN review.approvals_needed IS 'The number that the policy requires for this change.';
COMMENT ON COLUMN review.epoch IS
  'head.epoch at the submission. Reviews of earlier epochs are invalid.';
COMMENT ON COLUMN review.root_hash IS
  'The root as planned on the base. The committed root also has changes of other deployments.';
COMMENT ON COLUMN review.summary IS 'A summary for pages, which need not plan again.';
ALTER TABLE blueprint ADD CONSTRAINT blueprint_review
  FOREIGN KEY (review_id) REFERENCES review(id);

CREATE TABLE review_base (
  review_id      bigint NOT NULL REFERENCES review,
  deployment_id  uuid   NOT NULL,
  head_no        bigint NOT NULL,
  PRIMARY KEY (review_id, deployment_id)
);
COMMENT ON TABLE review_base IS
  'The deployments that the change was planned on, each with its head_no then. A later commit there '
  'voids the review, in an ancestor only if it changed something that the review reads '
  '(base_moved). Append-only.';

CREATE TABLE review_author (
  review_id  bigint NOT NULL REFERENCES review,
  person_id  uuid   NOT NULL REFERENCES person,
  PRIMARY KEY (review_id, person_id)
);
CREATE INDEX review_author_person ON review_author (person_id, review_id DESC);
COMMENT ON TABLE review_author IS
  'The people who authored the change. They cannot approve it. Append-only.';

CREATE TABLE review_document (
  review_id  bigint NOT NULL REFERENCES review,
  kind       text   NOT NULL CHECK (kind IN ('deployment', 'node')),
  id         uuid   NOT NULL,
  old_hash   bytea REFERENCES object,
  new_hash   bytea REFERENCES object,
  PRIMARY KEY (review_id, kind, id),
  CONSTRAINT review_document_changes CHECK (old_hash IS DISTINCT FROM new_hash)
);
COMMENT ON TABLE review_document IS
  'The documents that the change adds (old_hash NULL), replaces or removes (new_hash NULL). '
  'Append-only.';

CREATE TABLE signature_demand (
  review_id  bigint PRIMARY KEY REFERENCES review
);
COMMENT ON TABLE signature_demand IS
  'Reviews whose approvals must be signed. The database decides this at the submission.';

CREATE TABLE verdict (
  id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  review_id      bigint      NOT NULL REFERENCES review,
  person_id      uuid REFERENCES person,
  policy_number  bigint REFERENCES policy,
  kind           text        NOT NULL CHECK (kind IN ('approve', 'request_changes', 'reject')),
  reason         text        NOT NULL DEFAULT '' CHECK (length(reason) <= 10000),
  at             timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT verdict_is_of_one CHECK ((person_id IS NULL) <> (policy_number IS NULL)),
  CONSTRAINT verdict_of_policy_approves CHECK (policy_number IS NULL OR kind = 'approve')
);
CREATE INDEX verdict_review ON verdict (review_id, id);
COMMENT ON TABLE verdict IS
  'Approvals and rejections. The last verdict of a person counts. Append-only.';
COMMENT ON COLUMN verdict.policy_number IS
  'Instead of a person: the policy that pre-approves this kind of change.';

CREATE TABLE verdict_signature (
  verdict_id          bigint PRIMARY KEY REFERENCES verdict,
  passkey_id          uuid   NOT NULL REFERENCES passkey,
  nonce               bytea  NOT NULL CHECK (octet_length(nonce) = 16),
  client_data         bytea  NOT NULL CHECK (octet_length(client_data) <= 8192),
  authenticator_data  bytea  NOT NULL CHECK (octet_length(authenticator_data) <= 8192),
  signature           bytea  NOT NULL CHECK (octet_length(signature) <= 2048),
  message             bytea  NOT NULL
      GENERATED ALWAYS AS (sha256(authenticator_data || sha256(client_data))) STORED
      UNIQUE
);
CREATE INDEX verdict_signature_passkey ON verdict_signature (passkey_id);
COMMENT ON TABLE verdict_signature IS 'Passkey signatures of verdicts.';
COMMENT ON COLUMN verdict_signature.message IS
  'The hash of the text that the authenticator signed. The same signature never counts twice.';

CREATE TABLE comment (
  id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  review_id    bigint      NOT NULL REFERENCES review,
  thread_id    bigint REFERENCES comment,
  anchor       text        NOT NULL DEFAULT '',
  person_id    uuid        NOT NULL REFERENCES person,
  body         text        NOT NULL CHECK (body <> '' AND length(body) <= 10000),
  at           timestamptz NOT NULL DEFAULT now(),
  resolved_by  uuid REFERENCES person,
  resolved_at  timestamptz,
  CONSTRAINT comment_anchor_is_of_the_thread CHECK (thread_id IS NULL OR anchor = ''),
  CONSTRAINT comment_anchor_is_short CHECK (octet_length(anchor) <= 2000),
  CONSTRAINT comment_only_a_thread_is_resolved CHECK (thread_id IS NULL OR resolved_by IS NULL),
  CONSTRAINT comment_resolution_is_complete CHECK ((resolved_by IS NULL) = (resolved_at IS NULL))
);
CREATE INDEX comment_open ON comment (review_id) WHERE thread_id IS NULL AND resolved_by IS NULL;
CREATE INDEX comment_review ON comment (review_id, id);
CREATE INDEX comment_thread ON comment (thread_id) WHERE thread_id IS NOT NULL;
COMMENT ON TABLE comment IS 'Threads of a review and their replies.';
COMMENT ON COLUMN comment.thread_id IS
  'The comment that started the thread. NULL: this comment starts a thread and can be resolved.';
COMMENT ON COLUMN comment.anchor IS
  'The change that the thread is about (engine::blueprint::Anchor). Empty: the whole review.';

CREATE TABLE review_view (
  person_id    uuid        NOT NULL REFERENCES person,
  proposal_id  bigint      NOT NULL REFERENCES proposal,
  review_id    bigint      NOT NULL REFERENCES review,
  before_id    bigint REFERENCES review,
  at           timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (person_id, proposal_id),
  CONSTRAINT review_view_is_newer CHECK (before_id < review_id)
);
COMMENT ON TABLE review_view IS
  'The newest review of a proposal that a person has viewed, and the one that they viewed before '
  'it.';

CREATE TABLE viewed_change (
  person_id    uuid        NOT NULL REFERENCES person,
  proposal_id  bigint      NOT NULL REFERENCES proposal,
  kind         text        NOT NULL CHECK (kind IN ('policy', 'deployment', 'node')),
  document_id  uuid        NOT NULL,
  content      bytea       NOT NULL CHECK (octet_length(content) = 32),
  at           timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (person_id, proposal_id, kind, document_id),
  CONSTRAINT viewed_change_policy_is_one CHECK (
    kind <> 'policy' OR document_id = '00000000-0000-0000-0000-000000000000')
);
COMMENT ON TABLE viewed_change IS
  'The change of a document, in any review of a proposal, that a person last viewed.';
COMMENT ON COLUMN viewed_change.document_id IS 'All zeros for the policy.';
COMMENT ON COLUMN viewed_change.content IS
  'The hash of the viewed change (engine::blueprint::viewed). Another change counts as not viewed.';

CREATE TABLE replan (
  before_id         bigint      PRIMARY KEY,
  proposal_id       bigint      NOT NULL REFERENCES proposal,
  after_id          bigint UNIQUE,
  version           int         NOT NULL CHECK (version > 1),
  blueprint_number  bigint      NOT NULL REFERENCES blueprint,
  moved             text[]      NOT NULL DEFAULT '{}',
  refused           jsonb       NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(refused) = 'array'),
  at                timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT replan_has_one_outcome CHECK ((after_id IS NULL) = (refused <> '[]')),
  CONSTRAINT replan_is_newer CHECK (before_id < after_id),
  CONSTRAINT replan_after FOREIGN KEY (after_id, proposal_id) REFERENCES review(id, proposal_id),
  CONSTRAINT replan_before FOREIGN KEY (before_id, proposal_id) REFERENCES review(id, proposal_id),
  UNIQUE (proposal_id, version)
);
COMMENT ON TABLE replan IS
  'A review whose base changed, and the result of replanning it. Append-only, one row per review.';
COMMENT ON COLUMN replan.before_id IS 'The review whose base changed.';
COMMENT ON COLUMN replan.after_id IS 'NULL: the proposal was sent back to its authors.';
COMMENT ON COLUMN replan.version IS 'The version of the proposal after the replan.';
COMMENT ON COLUMN replan.blueprint_number IS 'The blueprint that the proposal was replanned on.';
COMMENT ON COLUMN replan.moved IS 'Descriptions of the changed parts of the base.';
COMMENT ON COLUMN replan.refused IS 'Why the proposal is back with its authors.';
