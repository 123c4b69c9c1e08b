-- Locked, so that no run of the step ends before the comparison is stored.
SELECT s.generation, s.noderole_id, n.deployment_id FROM step s JOIN noderole n ON n.id = s.noderole_id
WHERE s.id = $1 AND s.input_version = $2 AND s.state = 'active' AND s.pending = 0
FOR UPDATE OF s
