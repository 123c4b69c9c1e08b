-- $1: the worker; $2: the most rows to read. One check runs on a node at a time. A row whose step
-- cannot be checked now is postponed, so that it does not keep others waiting. A step that becomes
-- ACTIVE is due at once (guard_step_is_checked).
WITH due AS MATERIALIZED (
  SELECT c.step_id, c.node_id, c.due_at FROM role_check c
  WHERE c.due_at <= now() AND (SELECT h.enabled FROM head h)
    AND EXISTS (SELECT FROM worker w WHERE w.id = $1 AND w.phase = 'confirmed' AND w.lease_until > now())
    AND NOT EXISTS (
      SELECT FROM role_check o
      WHERE o.node_id = c.node_id AND o.worker_id IS NOT NULL AND o.due_at > now())
  ORDER BY c.due_at, c.step_id LIMIT $2 FOR UPDATE OF c SKIP LOCKED),
candidates AS MATERIALIZED (
  SELECT d.*, s.check_s, CASE
      WHEN s.check_s IS NULL OR s.skipped IS NOT NULL OR NOT (s.state = 'active'
        OR s.state = 'error' AND s.applied_generation = s.generation AND s.cause IS NULL) THEN 3600
      WHEN NOT s.node_fits OR NOT j.active OR on_hold(n.deployment_id) THEN 30
      WHEN s.pending > 0 OR EXISTS (
        SELECT FROM run r WHERE r.node_id = s.node_id AND r.exclusive AND r.ended_at IS NULL) THEN 5
    END AS postponed_s
  FROM due d JOIN step s ON s.id = d.step_id JOIN noderole n ON n.id = s.noderole_id
  JOIN jig j ON j.name = s.jig),
picked AS MATERIALIZED (
  SELECT DISTINCT ON (node_id) step_id FROM candidates WHERE postponed_s IS NULL
  ORDER BY node_id, due_at, step_id),
leased AS (
  UPDATE role_check c SET
    due_at = now() + make_interval(secs => coalesce(j.postponed_s, least(j.check_s, 300) + 60)),
    worker_id = CASE WHEN j.postponed_s IS NULL THEN $1 END,
    leased_at = CASE WHEN j.postponed_s IS NULL THEN now() END
  FROM candidates j
  WHERE c.step_id = j.step_id
    AND (j.postponed_s IS NOT NULL OR j.step_id IN (SELECT p.step_id FROM picked p))
  RETURNING c.step_id, c.leased_at)
SELECT l.step_id, l.leased_at, s.noderole_id, s.node_id, n.role, n.instance, n.role_hash,
  n.deployment_id, s.generation, d.fqdn, node_connection(d.transport, d.address, d.connection) AS connection,
  h.epoch, h.number AS head, b.root AS head_root, m.number AS reviewed, i.input, i.surroundings
FROM leased l JOIN step s ON s.id = l.step_id JOIN noderole n ON n.id = s.noderole_id
JOIN node d ON d.id = s.node_id CROSS JOIN head h JOIN blueprint b ON b.number = h.number
CROSS JOIN LATERAL (
  SELECT t.number FROM blueprint t WHERE t.number <= h.number AND t.kind <> 'switch'
  ORDER BY t.number DESC LIMIT 1) m
LEFT JOIN LATERAL (
  SELECT r.input, r.surroundings FROM run r WHERE r.step_id = s.id AND r.outcome = 'succeeded'
  ORDER BY r.id DESC LIMIT 1) i ON true
WHERE l.leased_at IS NOT NULL
