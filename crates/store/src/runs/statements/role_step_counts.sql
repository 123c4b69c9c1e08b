WITH shown AS (
  SELECT s.id, r.deployment_id, r.role, s.state, s.stale, s.pending, s.input_version, s.input_checked
  FROM noderole r JOIN step s ON s.noderole_id = r.id AND s.action = 'run'
  WHERE r.deployment_id = $1 AND s.state <> 'gone' AND r.id <> ALL($2)
  UNION ALL
  SELECT s.id, r.deployment_id, r.role, s.state, s.stale, s.pending, s.input_version, s.input_checked
  FROM node n JOIN noderole r ON r.node_id = n.id JOIN step s ON s.noderole_id = r.id AND s.action = 'run'
  WHERE n.deployment_id = $1 AND r.deployment_id <> $1 AND s.state <> 'gone' AND r.id <> ALL($2))
SELECT deployment_id AS deployment, role,
  count(*) FILTER (WHERE shown.state = 'blocked') AS blocked, count(*) FILTER (WHERE shown.state = 'todo') AS todo,
  count(*) FILTER (WHERE shown.state = 'transition') AS transition, count(*) FILTER (WHERE shown.state = 'active') AS active,
  count(*) FILTER (WHERE shown.state = 'error') AS error, count(*) FILTER (WHERE shown.state = 'active' AND stale) AS stale,
  count(*) FILTER (WHERE shown.state = 'active' AND pending = 0 AND input_version <> input_checked) AS comparing,
  count(c.step_id) FILTER (WHERE shown.state = 'active') AS unchecked
FROM shown LEFT JOIN role_check c ON c.step_id = shown.id AND c.passes_until <= now()
GROUP BY deployment_id, role ORDER BY role, deployment_id
