WITH reported AS MATERIALIZED (
  SELECT * FROM unnest($2::bigint[], $3::text[], $4::text[], $5::jsonb[], $7::int[])
    AS s (id, outcome, error, result, bytes)),
open AS (
  SELECT r.id, r.cancel_requested, CASE WHEN r.cancel_requested THEN r.error END AS cancel
  FROM run r WHERE r.id = ANY($2) AND r.ended_at IS NULL AND r.worker_id = $1 AND r.state = 'running'
  ORDER BY r.id FOR UPDATE)
UPDATE run r SET state = 'ended', ended_at = now(),
  result = CASE WHEN nd.removed_in IS NULL THEN reported.result END, result_bytes = reported.bytes,
  outcome = CASE WHEN open.cancel_requested AND reported.outcome <> 'succeeded' THEN 'canceled' ELSE reported.outcome END,
  error = CASE WHEN reported.outcome = 'succeeded' THEN NULL ELSE coalesce(open.cancel, reported.error) END
FROM open JOIN reported ON reported.id = open.id JOIN run o ON o.id = open.id JOIN step s ON s.id = o.step_id
JOIN noderole n ON n.id = s.noderole_id JOIN node nd ON nd.id = o.node_id
WHERE r.id = open.id
RETURNING r.id, r.step_id, r.node_id, s.noderole_id, n.deployment_id, r.generation, r.log_bytes,
  r.superseded, replace(open.cancel, $6, '') AS canceled_by
