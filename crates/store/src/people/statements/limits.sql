WITH cooling AS (
  SELECT make_interval(hours => cooling_hours(y.hash)) AS period
  FROM head h JOIN policy y ON y.number = h.policy_number)
SELECT o.name, max(c.at + k.period) FROM cooling k
CROSS JOIN access_change c
CROSS JOIN LATERAL access_origins(c.by, c.at, k.period, 'infinity') AS origin (id)
JOIN person o ON o.id = origin.id
WHERE c.person_id = $1 AND c.by IS NOT NULL AND c.confirmed_at IS NULL AND c.at + k.period > clock_timestamp()
  AND o.id <> $1
GROUP BY o.name ORDER BY o.name
