WITH piece AS (
  INSERT INTO run_log (run_id, at_offset, at, body)
  VALUES ($1, $2, now() - make_interval(secs => $3), $4)
  ON CONFLICT DO NOTHING RETURNING 1),
-- The guard of run_log compares the offset with log_bytes, so the piece comes first.
length AS (
  UPDATE run SET log_bytes = $5
  WHERE id = $1 AND log_bytes < $5 AND (SELECT count(*) FROM piece) >= 0)
SELECT pg_notify($6, $1::text || ' ' || $5::text)
