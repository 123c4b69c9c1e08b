-- Everybody looks for what they wrote themselves: without an index that is a look at all submissions there ever were.

CREATE INDEX submission_author_person ON submission_author (person_id, submission_id DESC);
