UPDATE run r SET worker_id = $2, adoptions = r.adoptions + 1,
  lease_until = now() + make_interval(secs => $3)
FROM step s CROSS JOIN head h
WHERE r.id = $1 AND s.id = r.step_id AND r.state = 'running' AND r.lease_until < now()
  AND r.worker_id <> $2 AND r.adoptions < 5 AND NOT r.cancel_requested AND r.input IS NOT NULL
  AND r.epoch = h.epoch AND s.state = 'transition' AND s.generation = r.generation
  AND EXISTS (SELECT FROM worker w WHERE w.id = $2 AND w.phase = 'confirmed' AND w.lease_until > now()
    AND w.drain_since IS NULL)
RETURNING r.input, r.log_bytes, r.out_bytes, r.err_bytes
