WITH shown AS (
  (SELECT id, step_id, node_id, coalesce(outcome, state) AS state, queued_at, started_at, ended_at FROM run
   WHERE generation = $1 ORDER BY id DESC LIMIT $2)
  UNION
  (SELECT id, step_id, node_id, coalesce(outcome, state) AS state, queued_at, started_at, ended_at FROM run
   WHERE generation = $1 AND outcome IN ('failed', 'lost') ORDER BY id DESC LIMIT $3))
SELECT w.id, w.node_id AS node, n.fqdn, r.role, w.state, w.queued_at, w.started_at, w.ended_at
FROM shown w JOIN step s ON s.id = w.step_id JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = w.node_id
ORDER BY w.id DESC
