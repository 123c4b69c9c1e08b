WITH changed AS (
  SELECT id FROM unnest($1::uuid[]) AS c (id)
  UNION
  SELECT s.id FROM unnest($2::uuid[]) AS n (id) JOIN step s ON s.node_id = n.id
  WHERE s.action = 'run' AND s.state <> 'gone'),
affected AS (
  SELECT e.child AS id FROM changed c JOIN edge e ON e.parent = c.id WHERE e.kind = 'hard'
  UNION
  SELECT id FROM unnest($3::uuid[]) AS r (id))
UPDATE step s SET input_version = s.input_version + 1 FROM affected a
WHERE s.id = a.id AND s.action = 'run' AND s.state <> 'gone'
