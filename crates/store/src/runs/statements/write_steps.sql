UPDATE step s SET state = d.state, pending = d.pending, satisfied = d.satisfied,
  applied_generation = d.applied, failures = d.failures, cause = d.cause,
  cause_by = CASE WHEN d.cause IS NOT DISTINCT FROM s.cause AND s.state <> 'error' THEN s.cause_by END, error = d.error, node_up = d.node_up,
  since = CASE WHEN d.state = d.was THEN s.since ELSE now() END,
  not_before = CASE WHEN d.wait IS NULL THEN s.not_before ELSE now() + make_interval(secs => d.wait) END
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::int[], $5::int[], $6::bigint[], $7::int[], $8::text[],
    $9::text[], $10::bool[], $11::float8[])
  AS d (id, was, state, pending, satisfied, applied, failures, cause, error, node_up, wait)
JOIN step old ON old.id = d.id JOIN noderole n ON n.id = old.noderole_id
WHERE s.id = d.id
RETURNING s.noderole_id, n.deployment_id, s.state, d.state <> d.was AS moved
