WITH RECURSIVE up (id) AS (
  SELECT id FROM step
  WHERE ($1::bigint IS NULL OR generation = $1)
    AND ($4::bigint[] IS NULL OR concurrency_group_id = ANY ($4))
    AND state IN ('blocked', 'todo', 'transition', 'error')
  UNION
  SELECT p.id FROM up JOIN step c ON c.id = up.id AND c.state = 'blocked'
  JOIN edge e ON e.child = c.id JOIN step p ON p.id = e.parent
  WHERE p.state IN ('blocked', 'todo', 'transition')
    OR (p.state = 'error' AND e.kind <> 'order_only' AND c.join_after = 'success')),
walked AS MATERIALIZED (SELECT id FROM up LIMIT $3)
SELECT (SELECT count(*) FROM walked), ARRAY(
  SELECT s.id FROM walked JOIN step s ON s.id = walked.id
  WHERE s.state <> 'blocked' ORDER BY s.since, s.id LIMIT $2)
