SELECT o.id AS node, r.id AS run, r.step_id AS step, nr.role, nr.instance, s.action, r.outcome,
  r.generation, r.ended_at AS at, r.result
FROM unnest($1::uuid[]) AS o (id)
CROSS JOIN LATERAL (
  SELECT id, row_number() OVER (PARTITION BY step_id ORDER BY id DESC) AS nth FROM run
  WHERE node_id = o.id AND result IS NOT NULL AND result_bytes > 0
  ORDER BY 2, 1 DESC LIMIT $2) newest
JOIN run r ON r.id = newest.id JOIN step s ON s.id = r.step_id
JOIN noderole nr ON nr.id = s.noderole_id
WHERE r.ended_at IS NOT NULL AND r.result IS NOT NULL ORDER BY r.id DESC
