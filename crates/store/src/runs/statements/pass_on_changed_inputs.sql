-- All locks are taken in one statement, in the usual order.
WITH k AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::int[]) AS k (id, version)),
child AS MATERIALIZED (
  SELECT DISTINCT e.child AS id FROM k JOIN edge e ON e.parent = k.id AND e.kind = 'hard'),
locked AS MATERIALIZED (
  SELECT id FROM step WHERE id IN (SELECT id FROM k UNION SELECT id FROM child)
  ORDER BY rank, id FOR UPDATE)
UPDATE step s SET input_checked = coalesce(k.version, s.input_checked),
  input_version = s.input_version + (child.id IS NOT NULL)::int
FROM locked l LEFT JOIN k ON k.id = l.id LEFT JOIN child ON child.id = l.id
WHERE s.id = l.id AND s.action = 'run'
