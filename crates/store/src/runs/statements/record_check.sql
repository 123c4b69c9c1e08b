UPDATE role_check c SET generation = $2, state = $3, failures = $4, caused_rerun = $5, detail = $6, duration_ms = $7,
  checked_at = now(), changed_at = CASE WHEN c.state = $3 THEN c.changed_at ELSE now() END,
  passes_until = now() + CASE WHEN $3 = 'passing' THEN make_interval(secs => 2 * $8 + 60) ELSE interval '0' END,
  due_at = greatest(now(), c.leased_at + make_interval(secs => $8)), worker_id = NULL, leased_at = NULL
WHERE c.step_id = $1
