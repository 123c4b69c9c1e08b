SELECT s.id, s.noderole_id, s.node_id, n.role, n.instance, s.immediate, n.system_data,
  s.input_version, s.input_hash, h.number AS head, t.root AS head_root
FROM step s JOIN noderole n ON n.id = s.noderole_id
CROSS JOIN head h JOIN blueprint t ON t.number = h.number
WHERE s.input_version <> s.input_checked AND s.state = 'active' AND s.pending = 0
  -- A subquery is hashed, however many steps are left out.
  AND s.id NOT IN (SELECT unnest($2::uuid[]))
ORDER BY s.rank, s.id LIMIT $1
