-- When everybody was last here. Sessions end and are forgotten, and programs have none: neither can say it for good.
--
-- A table of its own, not a column of person: whoever counts on what a person may keeps that row shared until their transaction ends, and
-- nobody's next request should wait for somebody's commit.
CREATE TABLE visit (
  person_id  uuid PRIMARY KEY REFERENCES person,
  at         timestamptz NOT NULL
);
COMMENT ON TABLE visit IS
  'When a person was last here: signed in, came by a session or by a token. As exact as what is noted of those (a minute).';

INSERT INTO visit (person_id, at)
SELECT v.person_id, max(v.at) FROM (
  SELECT person_id, last_seen_at AS at FROM session
  UNION ALL SELECT person_id, last_used_at FROM token WHERE kind = 'api' AND last_used_at IS NOT NULL
  UNION ALL SELECT actor, max(at) FROM audit WHERE action = 'sign_in' AND actor IS NOT NULL GROUP BY actor) v
GROUP BY v.person_id;
