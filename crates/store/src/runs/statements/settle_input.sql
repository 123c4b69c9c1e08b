WITH old AS (SELECT id, stale FROM step WHERE id = $1 FOR UPDATE)
UPDATE step s SET input_checked = $2, input_hash = coalesce($3, s.input_hash), stale = $4
FROM old WHERE s.id = old.id RETURNING old.stale <> s.stale
