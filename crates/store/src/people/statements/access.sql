WITH RECURSIVE origin AS (
  SELECT unnest($1::uuid[]) AS person_id
  UNION
  SELECT c.by FROM origin o JOIN access_change c ON c.person_id = o.person_id WHERE c.by IS NOT NULL)
SELECT c.person_id, w.name, c.by, p.name, c.kind, (extract(epoch FROM c.at) * 1000000)::bigint, c.confirmed_at IS NOT NULL
FROM origin o JOIN access_change c ON c.person_id = o.person_id JOIN person p ON p.id = c.by
JOIN person w ON w.id = c.person_id ORDER BY c.id
