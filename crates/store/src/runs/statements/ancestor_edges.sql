-- OFFSET 0 forces lookups by key, however many edges the planner expects.
WITH RECURSIVE above (id) AS (
  SELECT * FROM unnest($1::uuid[])
  UNION
  SELECT e.parent FROM above a CROSS JOIN LATERAL (
    SELECT parent FROM edge WHERE child = a.id AND kind = 'hard' OFFSET 0) e)
SELECT a.id, e.parent FROM above a CROSS JOIN LATERAL (
  SELECT parent FROM edge WHERE child = a.id AND kind = 'hard' OFFSET 0) e
