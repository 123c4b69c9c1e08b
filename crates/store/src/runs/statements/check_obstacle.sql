-- $1: the step. The first reason why no worker can run its check now, by the rules of
-- lease_checks.sql. NULL: a worker can run it.
SELECT CASE
    WHEN NOT h.enabled THEN 'execution_off'
    WHEN on_hold(n.deployment_id) THEN 'on_hold'
    WHEN NOT j.active THEN 'jig_off'
    WHEN NOT d.available THEN 'maintenance'
    WHEN NOT s.node_fits THEN 'node'
    WHEN NOT EXISTS (
      SELECT FROM worker w WHERE w.phase = 'confirmed' AND w.lease_until > now()) THEN 'no_worker'
    WHEN s.pending > 0 THEN 'parent'
    WHEN EXISTS (
      SELECT FROM run r WHERE r.node_id = s.node_id AND r.exclusive AND r.ended_at IS NULL) THEN 'run'
  END
FROM step s JOIN noderole n ON n.id = s.noderole_id JOIN node d ON d.id = s.node_id
JOIN jig j ON j.name = s.jig CROSS JOIN head h
WHERE s.id = $1
