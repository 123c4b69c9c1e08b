-- Discussions: integrity of threads, and the newest review that each person viewed.

ALTER TABLE comment
  ADD CONSTRAINT comment_only_a_thread_is_resolved CHECK (thread_id IS NULL OR resolved_by IS NULL),
  ADD CONSTRAINT comment_anchor_is_of_the_thread CHECK (thread_id IS NULL OR anchor = ''),
  ADD CONSTRAINT comment_anchor_is_short CHECK (octet_length(anchor) <= 2000);
CREATE INDEX comment_open ON comment (submission_id) WHERE thread_id IS NULL AND resolved_by IS NULL;
CREATE INDEX comment_thread ON comment (thread_id) WHERE thread_id IS NOT NULL;
COMMENT ON COLUMN comment.anchor IS
  'The change that the thread is about (engine::blueprint::Anchor). Empty: the whole review.';

CREATE TABLE look (
  person_id      uuid NOT NULL REFERENCES person,
  proposal_id    bigint NOT NULL REFERENCES proposal,
  submission_id  bigint NOT NULL REFERENCES submission,
  before_id      bigint REFERENCES submission,
  at             timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (person_id, proposal_id),
  CONSTRAINT look_goes_on CHECK (before_id < submission_id)
);
COMMENT ON TABLE look IS
  'The newest review of a proposal that a person has viewed, and the one that they viewed '
  'before it.';
