WITH seen AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[]) AS s (id)
  UNION
  SELECT s.id FROM unnest($2::uuid[]) AS o (id)
  CROSS JOIN LATERAL (
    SELECT id FROM step WHERE node_id = o.id AND state = 'active' AND action = 'run' OFFSET 0) s)
SELECT s.id, s.rank, s.immediate, s.state = 'active' AS active,
  s.skipped IS NOT NULL AS skipped, s.noderole_id, n.role, n.instance, n.role_hash, n.deployment_id,
  n.system_data, n.data, CASE WHEN s.state = 'active' THEN s.output END AS output, s.output_run,
  s.node_id, o.fqdn, o.phantom,
  CASE WHEN o.address <> '[]' THEN o.address ELSE coalesce(o.connection -> 'addresses', '[]') END AS addresses,
  (SELECT number FROM head) AS head
FROM seen JOIN step s ON s.id = seen.id JOIN noderole n ON n.id = s.noderole_id
JOIN node o ON o.id = s.node_id
