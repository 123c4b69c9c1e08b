WITH piece AS (
  INSERT INTO run_log (run_id, at_offset, at, body)
  SELECT $1, $2, now() - make_interval(secs => $3), $4
  -- The log of an adopted run is continued by the worker that adopted it.
  FROM run r WHERE r.id = $1 AND ($7::uuid IS NULL OR r.worker_id = $7)
  ON CONFLICT DO NOTHING RETURNING 1),
-- The guard of run_log compares the offset with log_bytes, so the piece comes first.
length AS (
  UPDATE run SET log_bytes = $5, out_bytes = greatest(out_bytes, $8), err_bytes = greatest(err_bytes, $9)
  WHERE id = $1 AND ($7::uuid IS NULL OR worker_id = $7) AND log_bytes < $5
    AND (SELECT count(*) FROM piece) >= 0)
SELECT pg_notify($6, $1::text || ' ' || $5::text)
