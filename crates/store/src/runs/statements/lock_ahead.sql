-- OFFSET 0 forces lookups by key. The steps are few, even if the planner expects many, and scanning
-- all edges takes longer than everything else.
WITH RECURSIVE passed AS (
  SELECT id FROM unnest($1::uuid[]) AS s (id)
  UNION
  SELECT s.id FROM passed p
  CROSS JOIN LATERAL (SELECT child FROM edge WHERE parent = p.id OFFSET 0) e
  JOIN step s ON s.id = e.child WHERE s.immediate OR s.skipped IS NOT NULL)
SELECT p.id, e.child, e.kind FROM passed p LEFT JOIN edge e ON e.parent = p.id
