SELECT s.id, convert_from(o.body, 'UTF8')::jsonb #> '{run,on_return}'
FROM step s JOIN noderole n ON n.id = s.noderole_id JOIN object o ON o.hash = n.role_hash
WHERE s.node_id = $1 AND s.cause = 'node_away'
