-- Pending steps with their first reason, by the rules of engine::anneal::pending_reason. Those of
-- TODO steps come from step_admission. Each returned row has the number of all steps with the same
-- reason.
--
-- - $1 maximum number of open runs
-- - $2 maximum number of steps to read per state, in the order
-- - $3 states
-- - $4 `concurrency_group_id` (NULL: all)
-- - $5 node (NULL: all)
-- - $6 whether to start after the cursor (since, id) $7, $8
-- - $9 the reason that gets a page, $10 the page's length
-- - $11 number of steps for each other reason
-- - $12 seconds after its time limit from which a run is overdue
-- - $13 only these steps (NULL: all)
--
-- Store replaces the parts in braces with the order. Longest pending first is > and ASC, newest
-- first is < and DESC.
WITH RECURSIVE running AS MATERIALIZED (
  SELECT r.step_id, r.state = 'queued' AS queued,
    r.lease_until < now() OR r.started_at + make_interval(secs => s.timeout_s + $12) < now() AS overdue
  FROM run r JOIN step s ON s.id = r.step_id WHERE r.ended_at IS NULL
),
-- Steps blocked by a failure. The walk starts at the failures and stops at the limit.
blocked_by_failure (id) AS (
  SELECT id FROM step WHERE state = 'error' AND 'blocked' = ANY ($3)
  UNION
  SELECT c.id FROM blocked_by_failure JOIN step p ON p.id = blocked_by_failure.id JOIN edge e ON e.parent = p.id
  JOIN step c ON c.id = e.child AND c.state = 'blocked'
  WHERE CASE p.state WHEN 'error' THEN e.kind <> 'order_only' AND c.join_after = 'success'
                     ELSE NOT (e.kind = 'order_only' AND p.skipped IS NOT NULL) END
),
dependency_failed AS MATERIALIZED (
  SELECT id FROM blocked_by_failure LIMIT 8 * $2
),
read_steps AS MATERIALIZED (
  SELECT l.id, l.state, l.since FROM unnest($3::text[]) AS w (state) CROSS JOIN LATERAL (
    SELECT s.id, s.state, s.since FROM step s
    WHERE s.state = w.state AND s.state IN ('blocked', 'todo', 'transition', 'error')
      AND ($4::bigint[] IS NULL OR s.concurrency_group_id = ANY ($4)) AND ($5::uuid IS NULL OR s.node_id = $5)
      AND ($6::bool IS NOT TRUE OR (s.since, s.id) {comparison} ($7::timestamptz, $8::uuid))
      AND ($13::uuid[] IS NULL OR s.id = ANY ($13))
    ORDER BY s.since {order}, s.id {order} LIMIT $2
  ) l
),
-- States that may have more steps than were read.
truncated AS MATERIALIZED (
  SELECT state FROM read_steps GROUP BY state HAVING count(*) >= $2
),
pending AS MATERIALIZED (
  SELECT read_steps.*, CASE read_steps.state
      WHEN 'error' THEN 'failed'
      WHEN 'blocked' THEN CASE WHEN read_steps.id IN (SELECT id FROM dependency_failed) THEN 'dependency_failed' ELSE 'parents' END
      WHEN 'transition' THEN CASE
        WHEN r.step_id IS NULL THEN 'unknown'
        WHEN r.queued AND a.no_worker THEN 'no_worker'
        WHEN r.queued AND a.no_worker_for_jig THEN 'no_worker_for_jig'
        WHEN r.queued THEN 'queued'
        WHEN r.overdue THEN 'overdue'
      END
      ELSE coalesce(a.reason, 'ready')
    END AS reason
  FROM read_steps JOIN step_admission($1) a ON a.step_id = read_steps.id LEFT JOIN running r ON r.step_id = read_steps.id
),
counted AS MATERIALIZED (
  SELECT *, count(*) OVER (PARTITION BY reason) AS total, row_number() OVER (PARTITION BY reason ORDER BY since {order}, id {order}) AS position
  FROM pending WHERE reason IS NOT NULL
)
SELECT c.reason, c.total, c.position, EXISTS (SELECT FROM truncated WHERE truncated.state = c.state) AS more,
  c.id AS step, c.state, c.since, s.noderole_id AS noderole, r.role, s.action, s.node_id AS node, n.fqdn, d.name AS deployment,
  r.deployment_id,
  s.failures, s.retries, s.error, CASE WHEN isfinite(s.not_before) THEN s.not_before END AS not_before,
  o.id AS run, o.state AS run_state, o.queued_at, w.name AS worker,
  CASE WHEN c.state = 'error' THEN (SELECT max(x.id) FROM run x WHERE x.step_id = c.id) END AS last_run
FROM counted c JOIN step s ON s.id = c.id JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = s.node_id
JOIN deployment d ON d.id = r.deployment_id
LEFT JOIN run o ON o.step_id = s.id AND o.ended_at IS NULL LEFT JOIN worker w ON w.id = o.worker_id
WHERE c.position <= CASE WHEN c.reason = $9 THEN $10::bigint ELSE $11::bigint END
ORDER BY c.reason, c.position
