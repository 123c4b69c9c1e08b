WITH reported AS MATERIALIZED (
  SELECT * FROM unnest($2::bigint[], $3::jsonb[], $4::jsonb[], $5::bytea[], $6::int[])
    AS t (id, input, surroundings, input_hash, input_version)),
locked AS (
  SELECT id FROM run WHERE id = ANY($2) AND worker_id = $1 AND state = 'running'
  ORDER BY id FOR UPDATE)
UPDATE run r SET input = reported.input, surroundings = reported.surroundings,
  input_hash = reported.input_hash, input_version = reported.input_version
FROM locked JOIN reported ON reported.id = locked.id WHERE r.id = locked.id RETURNING r.id
