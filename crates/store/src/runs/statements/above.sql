WITH requested AS (SELECT unnest($1::uuid[]) AS id),
parent AS (
  SELECT w.id AS step, p.id, p.state, p.rank,
    e.kind <> 'order_only' AND p.state = 'error' AS failed,
    count(*) OVER (PARTITION BY w.id) AS open,
    row_number() OVER (PARTITION BY w.id
      ORDER BY (e.kind <> 'order_only' AND p.state = 'error') DESC, p.rank, p.id) AS position
  FROM requested w JOIN edge e ON e.child = w.id JOIN step p ON p.id = e.parent
  WHERE p.state IN ('blocked', 'todo', 'transition')
    OR (p.state = 'error' AND e.kind <> 'order_only')),
top AS (
  SELECT w.id AS step, t.id FROM requested w CROSS JOIN LATERAL (
    SELECT u.id FROM (
      WITH RECURSIVE up (id) AS (
        SELECT w.id UNION
        SELECT p.id FROM up JOIN step c ON c.id = up.id JOIN edge e ON e.child = up.id
        JOIN step p ON p.id = e.parent
        WHERE c.state = 'blocked' AND (p.state IN ('blocked', 'todo', 'transition')
          OR (p.state = 'error' AND e.kind <> 'order_only')))
      SELECT id FROM up LIMIT 500) u JOIN step s ON s.id = u.id
    WHERE s.state IN ('todo', 'transition', 'error')
    ORDER BY (s.state = 'error') DESC, s.since, s.id LIMIT 1) t),
reported AS (
  SELECT step, id, true AS parent, open FROM parent WHERE position <= 3
  UNION ALL
  SELECT step, id, false, 0 FROM top t
  WHERE NOT EXISTS (SELECT FROM parent p WHERE p.step = t.step AND p.id = t.id AND p.position <= 3))
SELECT t.step, s.noderole_id AS noderole, r.role, s.node_id AS node, n.fqdn, s.state, t.parent, t.open
FROM reported t JOIN step s ON s.id = t.id JOIN noderole r ON r.id = s.noderole_id
JOIN node n ON n.id = s.node_id
ORDER BY t.step, t.parent DESC, (s.state = 'error') DESC, s.rank, s.id
