WITH queued AS MATERIALIZED (
  SELECT r.id, s.timeout_s,
    h.enabled AND s.state = 'transition' AND s.generation = r.generation AND r.epoch = h.epoch
      AND NOT r.cancel_requested AND n.available
      AND l.deployment_id NOT IN (SELECT d.id FROM deployments_on_hold() d) AS may_start
  FROM run r JOIN step s ON s.id = r.step_id
  JOIN concurrency_group l ON l.id = r.concurrency_group_id JOIN jig j ON j.name = s.jig
  JOIN node n ON n.id = r.node_id CROSS JOIN head h
  WHERE r.state = 'queued' AND j.class = ANY($2)
    AND EXISTS (SELECT FROM worker w WHERE w.id = $1 AND w.phase = 'confirmed'
      AND w.drain_since IS NULL)
  ORDER BY r.id LIMIT $3 FOR UPDATE OF r SKIP LOCKED),
leased AS (
  UPDATE run r SET state = 'running', worker_id = $1, started_at = now(),
    lease_until = now() + make_interval(secs => $4)
  FROM queued q WHERE r.id = q.id AND q.may_start)
SELECT id, timeout_s, may_start FROM queued ORDER BY id
