SELECT e.proposal_id, e.seq, p.name, e.at, t.number AS target, e.body -> 'data' AS data
FROM edit e JOIN person p ON p.id = e.actor JOIN review s ON s.proposal_id = e.proposal_id
JOIN blueprint t ON t.review_id = s.id
WHERE e.body ->> 'edit' = $1 AND e.body ->> 'edit' IN ('set_noderole_data', 'set_role_data')
  AND NOT e.undone
  AND coalesce(e.body ->> 'node', e.body ->> 'deployment') = $2
  AND coalesce(e.body ->> 'noderole', e.body ->> 'role') = $3 AND t.number <= $4
ORDER BY t.number DESC, e.seq DESC LIMIT $5
