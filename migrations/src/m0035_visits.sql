-- The last visit of each person. Sessions end and are deleted, and API clients have none, so
-- neither records it permanently.
--
-- This is a table of its own, not a column of person. Permission checks lock the row of a person
-- until their transaction ends. A request must not wait for another request's commit.
CREATE TABLE visit (
  person_id  uuid PRIMARY KEY REFERENCES person,
  at         timestamptz NOT NULL
);
COMMENT ON TABLE visit IS
  'The last visit of a person: a sign-in, or a request with a session or token. Accurate to '
  'one minute.';

INSERT INTO visit (person_id, at)
SELECT v.person_id, max(v.at) FROM (
  SELECT person_id, last_seen_at AS at FROM session
  UNION ALL SELECT person_id, last_used_at FROM token WHERE kind = 'api' AND last_used_at IS NOT NULL
  UNION ALL SELECT actor, max(at) FROM audit WHERE action = 'sign_in' AND actor IS NOT NULL GROUP BY actor) v
GROUP BY v.person_id;
