-- The changes of a review that each person has opened.

CREATE TABLE opened (
  person_id      uuid NOT NULL REFERENCES person,
  proposal_id    bigint NOT NULL REFERENCES proposal,
  kind           text NOT NULL CHECK (kind IN ('deployment', 'node')),
  document_id    uuid NOT NULL,
  content        bytea NOT NULL CHECK (octet_length(content) = 32),
  at             timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (person_id, proposal_id, kind, document_id)
);
COMMENT ON TABLE opened IS
  'The change of a document, in any review of a proposal, that a person last viewed.';
COMMENT ON COLUMN opened.content IS
  'The hash of the viewed change (engine::blueprint::opened). Another change counts as not viewed.';
