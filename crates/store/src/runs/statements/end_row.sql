WITH open AS (
  SELECT r.id, r.cancel_requested, CASE WHEN r.cancel_requested THEN r.error END AS cancel
  FROM run r WHERE r.id = $1 AND r.ended_at IS NULL AND CASE $3
    WHEN 'worker' THEN r.worker_id = $2 AND r.state = 'running'
    WHEN 'queue' THEN r.state = 'queued'
    WHEN 'reaper_queued' THEN r.state = 'queued' AND r.lease_until < now()
    ELSE r.lease_until < now() END
  FOR UPDATE)
UPDATE run r SET state = 'ended', ended_at = now(), {returned}
  outcome = CASE WHEN open.cancel_requested AND $4 <> 'succeeded' THEN 'canceled' ELSE $4 END,
  error = CASE WHEN $4 = 'succeeded' THEN NULL ELSE coalesce(open.cancel, $5) END
FROM open JOIN run o ON o.id = open.id JOIN step s ON s.id = o.step_id
JOIN noderole n ON n.id = s.noderole_id JOIN node nd ON nd.id = o.node_id
WHERE r.id = open.id
RETURNING r.id, r.step_id, r.node_id, s.noderole_id, n.deployment_id, r.generation, r.log_bytes,
  r.superseded, replace(open.cancel, $6, '') AS canceled_by
