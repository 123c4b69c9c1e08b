WITH looked AS MATERIALIZED (
  SELECT s.id, s.title, s.state, row_number() OVER () AS place FROM (
    SELECT s.id, s.title, p.state FROM review s JOIN proposal p ON p.id = s.proposal_id
    WHERE {state_filter} {author} {deployment} {compared} ORDER BY {order_by} LIMIT $2) s),
hit AS (
  SELECT s.id, s.title, s.place FROM looked s
  WHERE {outcome_filter} AND ($5::text IS NULL OR s.title ILIKE $5) ORDER BY s.place LIMIT $6)
SELECT ARRAY(SELECT id FROM hit ORDER BY place), ARRAY(SELECT title FROM hit ORDER BY place),
  (SELECT count(*) FROM looked), l.id, l.title
FROM (SELECT) one
LEFT JOIN (SELECT id, title FROM looked ORDER BY place DESC LIMIT 1) l ON true
