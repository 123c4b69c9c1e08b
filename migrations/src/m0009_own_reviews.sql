-- People list the reviews that they wrote. Without an index, that scans all reviews.

CREATE INDEX submission_author_person ON submission_author (person_id, submission_id DESC);
