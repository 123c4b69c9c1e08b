-- The parts of a deployment that a restoring proposal cannot restore. Reviewers have to see them.

CREATE TABLE left_out (
  proposal_id  bigint NOT NULL,
  first_edit   int NOT NULL,
  last_edit    int NOT NULL,
  target       bigint NOT NULL REFERENCES target,
  missing      text[] NOT NULL CHECK (cardinality(missing) BETWEEN 1 AND 200),
  more         int NOT NULL DEFAULT 0 CHECK (more >= 0),
  PRIMARY KEY (proposal_id, first_edit),
  FOREIGN KEY (proposal_id, first_edit) REFERENCES edit (proposal_id, seq),
  FOREIGN KEY (proposal_id, last_edit) REFERENCES edit (proposal_id, seq),
  CONSTRAINT left_out_edits_rise CHECK (last_edit >= first_edit)
);
COMMENT ON TABLE left_out IS
  'Parts that a restore omits. Valid while one of the restoring edits is valid. Append-only.';
COMMENT ON COLUMN left_out.more IS 'The number of omitted parts that are not listed.';
