SELECT p.id, p.deployment_id, d.name, p.node_id, p.created_by, p.title, p.state, p.version,
  (SELECT count(*) FROM edit e WHERE e.proposal_id = p.id AND NOT e.undone),
  ARRAY(SELECT DISTINCT w.name FROM edit e JOIN person w ON w.id = e.actor
        WHERE e.proposal_id = p.id ORDER BY w.name), s.id
FROM proposal p JOIN deployment d ON d.id = p.deployment_id LEFT JOIN node n ON n.id = p.node_id
LEFT JOIN review s ON s.proposal_id = p.id AND s.version = p.version
WHERE p.state = 'open' AND {after_cursor} AND ($2::uuid IS NULL OR p.deployment_id = $2)
  AND ($3::uuid IS NULL OR p.created_by = $3
    OR EXISTS (SELECT FROM edit e WHERE e.proposal_id = p.id AND e.actor = $3))
  AND NOT ($4 AND s.id IS NOT NULL)
  AND ($5::text IS NULL OR position(lower($5) IN lower(d.name)) > 0
    OR position(lower($5) IN lower(n.fqdn)) > 0)
ORDER BY {order_by} LIMIT $7
