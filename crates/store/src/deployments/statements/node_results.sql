SELECT r.id, s.noderole_id, nr.role, nr.instance, s.action, r.outcome, r.generation, r.ended_at,
  left(r.result::text, $4) AS begins, r.result_bytes
FROM run r JOIN step s ON s.id = r.step_id JOIN noderole nr ON nr.id = s.noderole_id
WHERE r.node_id = $1 AND r.result IS NOT NULL AND r.result_bytes > 0 AND r.ended_at IS NOT NULL
  AND ($2::bigint IS NULL OR r.id {sign} $2) AND ($5::text IS NULL OR r.outcome = $5)
  AND ($6::text IS NULL OR nr.role = $6)
ORDER BY r.id {direction} LIMIT $3
