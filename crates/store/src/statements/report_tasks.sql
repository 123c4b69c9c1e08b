WITH expired AS (
  DELETE FROM background_task WHERE (process_id, task) IN (
    SELECT process_id, task FROM background_task
    WHERE lease_until < now() AND process_id <> $1 LIMIT 100 FOR UPDATE SKIP LOCKED))
INSERT INTO background_task (process_id, process_kind, process, task, purpose, period_ms,
  started_at, ended_at, duration_ms, outcome, error, failures, due_at, lease_until)
SELECT $1, $2, $3, t.task, t.purpose, t.period_ms,
  now() - make_interval(secs => t.started_ago), now() - make_interval(secs => t.ended_ago),
  t.duration_ms, t.outcome, t.error, t.failures, now() + make_interval(secs => t.due_in),
  now() + make_interval(secs => $4)
FROM unnest($5::text[], $6::text[], $7::bigint[], $8::float8[], $9::float8[],
  $10::bigint[], $11::text[], $12::text[], $13::int[], $14::float8[])
  AS t (task, purpose, period_ms, started_ago, ended_ago, duration_ms, outcome, error,
        failures, due_in)
ON CONFLICT (process_id, task) DO UPDATE SET
  started_at = excluded.started_at, ended_at = excluded.ended_at,
  duration_ms = excluded.duration_ms, outcome = excluded.outcome, error = excluded.error,
  failures = excluded.failures, due_at = excluded.due_at,
  lease_until = excluded.lease_until
