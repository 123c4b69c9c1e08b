WITH demo AS MATERIALIZED (SELECT coalesce(max(id), 0) AS id, coalesce(max(at), '-infinity') AS at,
  coalesce(max(subject::bigint), 0) AS review FROM audit WHERE action = $2 AND actor IS NULL),
mine AS MATERIALIZED (SELECT review_id AS id FROM review_author, demo
  WHERE person_id = $1 AND review_id > demo.review ORDER BY review_id DESC LIMIT 100),
own AS (SELECT d.name FROM proposal p JOIN deployment d ON d.id = p.deployment_id
  WHERE p.state = 'open' AND p.kind = 'personal'
    AND EXISTS (SELECT FROM edit e, demo WHERE e.proposal_id = p.id AND e.actor = $1 AND e.at > demo.at)
  ORDER BY p.id DESC LIMIT 1),
acts AS MATERIALIZED (SELECT a.at, a.action, a.subject FROM audit a, demo WHERE a.actor = $1 AND a.id > demo.id
  ORDER BY a.id DESC LIMIT 200),
theirs AS MATERIALIZED (SELECT DISTINCT a.action, a.review AS id FROM (
    SELECT action, CASE WHEN action IN ('review.verdict', 'review.commit') THEN subject::bigint END AS review
    FROM acts) a
  WHERE NOT EXISTS (SELECT FROM review_author w WHERE w.review_id = a.review AND w.person_id = $1)),
line AS MATERIALIZED (SELECT t.number FROM (
    SELECT id FROM mine UNION SELECT id FROM theirs WHERE action = 'review.commit') m
  JOIN blueprint t ON t.review_id = m.id ORDER BY t.number DESC LIMIT 20),
line_step AS (SELECT s.id, s.noderole_id FROM line JOIN step s ON s.generation = line.number LIMIT 1000),
walked AS MATERIALIZED (SELECT r.*, line_step.noderole_id FROM line_step,
  LATERAL (SELECT r.step_id, r.id, r.generation, r.outcome, r.ended_at FROM run r
  WHERE r.step_id = line_step.id ORDER BY r.id DESC LIMIT 20) r)
SELECT EXISTS (SELECT FROM mine) OR EXISTS (SELECT FROM own)
    OR EXISTS (SELECT FROM acts WHERE action = 'proposal.edit') AS edited,
  (SELECT max(id) FROM mine) AS review,
  EXISTS (SELECT FROM mine JOIN verdict v ON v.review_id = mine.id WHERE v.person_id <> $1)
    OR EXISTS (SELECT FROM theirs WHERE action = 'review.verdict') AS reviewed,
  EXISTS (SELECT FROM line) AS committed,
  EXISTS (SELECT FROM walked w JOIN line ON line.number = w.generation WHERE w.outcome IS NOT NULL) AS ran,
  EXISTS (SELECT FROM walked w JOIN line ON line.number = w.generation WHERE w.outcome = 'failed' AND (
    EXISTS (SELECT FROM acts WHERE action = 'step.retry' AND subject = w.noderole_id::text AND at >= w.ended_at)
    OR EXISTS (SELECT FROM walked again JOIN line later ON later.number = again.generation
               WHERE again.step_id = w.step_id AND again.generation > w.generation))) AS retried,
  coalesce((SELECT name FROM own), (SELECT d.name FROM mine JOIN review s ON s.id = mine.id
    JOIN proposal p ON p.id = s.proposal_id JOIN deployment d ON d.id = p.deployment_id
    WHERE d.removed_in IS NULL ORDER BY mine.id DESC LIMIT 1)) AS deployment
