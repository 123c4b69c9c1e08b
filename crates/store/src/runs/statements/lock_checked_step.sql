-- Locked, so that no run of the step starts before the result is stored. No row: the result counts
-- no longer, because the lease is over or the step changed. disturbed: a failure says nothing,
-- because Gantry may not touch the node now, or an exclusive run worked on it during the check.
SELECT s.generation, s.state = 'error' AS is_failed, s.destructive, s.noderole_id, n.deployment_id,
  s.check_s, c.generation AS checked_generation, c.state AS checked_state, c.failures, c.caused_rerun,
  NOT s.node_fits OR s.pending > 0 OR NOT h.enabled OR on_hold(n.deployment_id) OR EXISTS (
    SELECT FROM (
      SELECT r.ended_at FROM run r WHERE r.node_id = s.node_id AND r.exclusive
      ORDER BY r.id DESC LIMIT 1) r
    WHERE r.ended_at IS NULL OR r.ended_at >= c.leased_at) AS disturbed
FROM step s JOIN noderole n ON n.id = s.noderole_id JOIN role_check c ON c.step_id = s.id
CROSS JOIN head h
WHERE s.id = $1 AND c.worker_id = $2 AND c.leased_at = $3 AND c.due_at > now()
  AND s.check_s IS NOT NULL AND s.skipped IS NULL AND s.since <= c.leased_at
  AND (s.state = 'active'
    OR s.state = 'error' AND s.applied_generation = s.generation AND s.cause IS NULL)
FOR UPDATE OF s, c
