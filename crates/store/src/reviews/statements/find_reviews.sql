WITH candidate AS MATERIALIZED (
  SELECT s.id, s.title, s.state, row_number() OVER () AS position FROM (
    SELECT s.id, s.title, p.state FROM review s JOIN proposal p ON p.id = s.proposal_id
    WHERE {state_filter} {author} {deployment} {compared} ORDER BY {order_by} LIMIT $2) s),
hit AS (
  SELECT s.id, s.title, s.position FROM candidate s
  WHERE {outcome_filter} AND ($5::text IS NULL OR s.title ILIKE $5) ORDER BY s.position LIMIT $6)
SELECT ARRAY(SELECT id FROM hit ORDER BY position), ARRAY(SELECT title FROM hit ORDER BY position),
  (SELECT count(*) FROM candidate), l.id, l.title
FROM (SELECT) one
LEFT JOIN (SELECT id, title FROM candidate ORDER BY position DESC LIMIT 1) l ON true
