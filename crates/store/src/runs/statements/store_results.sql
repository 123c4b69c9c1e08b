-- A changed output changes the input of the children. A run that read a changed input passes the
-- change on, because its children may read from its ancestors. They are locked already, like the
-- step.
WITH k AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::jsonb[], $4::jsonb[])
    AS k (id, run, results, output)),
affected AS MATERIALIZED (
  SELECT DISTINCT e.child AS id FROM k JOIN step p ON p.id = k.id JOIN run r ON r.id = k.run
  JOIN edge e ON e.parent = p.id AND e.kind = 'hard'
  WHERE k.output IS NOT NULL
    AND (p.output IS DISTINCT FROM k.output OR r.input_version <> p.input_checked)),
marked AS (
  UPDATE step c SET input_version = c.input_version + 1 FROM affected a
  WHERE c.id = a.id AND c.id NOT IN (SELECT id FROM k))
UPDATE step s SET results = k.results, output = coalesce(k.output, s.output),
  output_run = CASE WHEN k.output IS NULL THEN s.output_run ELSE k.run END,
  input_hash = CASE WHEN k.output IS NULL THEN s.input_hash ELSE r.input_hash END,
  input_checked = CASE WHEN k.output IS NULL THEN s.input_checked
    ELSE coalesce(r.input_version, s.input_version) END,
  stale = s.stale AND k.output IS NULL,
  input_version = s.input_version + (s.id IN (SELECT id FROM affected))::int
FROM k JOIN run r ON r.id = k.run WHERE s.id = k.id
