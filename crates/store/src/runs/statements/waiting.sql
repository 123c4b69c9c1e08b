-- Pending steps with their first reason, by the rules of engine::anneal::wait_of. Each returned row
-- has the number of all steps with the same reason.
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
WITH RECURSIVE held AS (
  SELECT id FROM deployment WHERE held_by IS NOT NULL
  UNION
  SELECT d.id FROM deployment d JOIN held ON d.parent = held.id
),
running AS MATERIALIZED (
  SELECT step_id, node_id, concurrency_group_id, exclusive, state, lease_until, started_at FROM run WHERE ended_at IS NULL
),
served AS MATERIALIZED (
  SELECT DISTINCT unnest(jigs) AS class FROM worker WHERE phase = 'confirmed' AND lease_until > now()
),
everywhere AS MATERIALIZED (
  SELECT h.enabled, (SELECT count(*) FROM running) AS open,
    (SELECT coalesce(sum(capacity), 0) FROM worker WHERE phase = 'confirmed' AND lease_until > now()) AS capacity
  FROM head h
),
in_group AS MATERIALIZED (
  SELECT concurrency_group_id, count(*)::int AS n FROM running GROUP BY concurrency_group_id
),
frozen AS MATERIALIZED (
  SELECT node_id, count(*) AS n, min(id::text) AS id FROM step WHERE state = 'error' AND freezes_node GROUP BY node_id
),
down AS MATERIALIZED (
  SELECT DISTINCT b.id AS disruption_budget_id, s.node_id
  FROM step s CROSS JOIN LATERAL unnest(s.disruption_budget_ids) AS b (id)
  WHERE s.disruption_budget_ids <> '{}' AND (s.state IN ('transition', 'error') OR s.failures > 0 OR NOT s.node_up)
),
budget_room AS MATERIALIZED (
  SELECT b.id, b.max_down - count(d.node_id)::int AS free
  FROM disruption_budget b LEFT JOIN down d ON d.disruption_budget_id = b.id GROUP BY b.id
),
-- Steps blocked by a failure. The walk starts at the failures and stops at the limit.
struck (id) AS (
  SELECT id FROM step WHERE state = 'error' AND 'blocked' = ANY ($3)
  UNION
  SELECT c.id FROM struck JOIN step p ON p.id = struck.id JOIN edge e ON e.parent = p.id
  JOIN step c ON c.id = e.child AND c.state = 'blocked'
  WHERE CASE p.state WHEN 'error' THEN e.kind <> 'order_only' AND c.join_after = 'success'
                     ELSE NOT (e.kind = 'order_only' AND p.skipped IS NOT NULL) END
),
behind AS MATERIALIZED (
  SELECT id FROM struck LIMIT 8 * $2
),
looked AS MATERIALIZED (
  SELECT l.id, l.state, l.since FROM unnest($3::text[]) AS w (state) CROSS JOIN LATERAL (
    SELECT s.id, s.state, s.since FROM step s
    WHERE s.state = w.state AND s.state IN ('blocked', 'todo', 'transition', 'error')
      AND ($4::bigint[] IS NULL OR s.concurrency_group_id = ANY ($4)) AND ($5::uuid IS NULL OR s.node_id = $5)
      AND ($6::bool IS NOT TRUE OR (s.since, s.id) {comparison} ($7::timestamptz, $8::uuid))
      AND ($13::uuid[] IS NULL OR s.id = ANY ($13))
    ORDER BY s.since {way}, s.id {way} LIMIT $2
  ) l
),
-- States that may have more steps than were read.
cut AS MATERIALIZED (
  SELECT state FROM looked GROUP BY state HAVING count(*) >= $2
),
waiting AS MATERIALIZED (
  SELECT s.id, s.since, s.state, CASE
      WHEN s.state = 'error' THEN 'failed'
      WHEN s.state = 'blocked' THEN CASE WHEN s.id IN (SELECT id FROM behind) THEN 'behind_failure' ELSE 'parents' END
      WHEN s.state = 'transition' THEN CASE
        WHEN r.step_id IS NULL THEN 'unknown'
        WHEN r.state = 'queued' AND a.capacity = 0 THEN 'no_worker'
        WHEN r.state = 'queued' AND NOT k.served THEN 'unserved'
        WHEN r.state = 'queued' THEN 'queued'
        WHEN r.lease_until < now() OR r.started_at + make_interval(secs => s.timeout_s + $12) < now() THEN 'overdue'
      END
      WHEN s.immediate OR s.skipped IS NOT NULL
        OR (s.applied_generation = s.generation AND (s.destructive OR s.cause IS NULL)) THEN 'rests'
      WHEN EXISTS (SELECT FROM unnest(s.disruption_budget_ids) AS b (id) WHERE b.id NOT IN (SELECT id FROM budget_room)) THEN 'unknown'
      WHEN NOT j.active THEN 'jig'
      WHEN NOT k.served THEN 'unserved'
      WHEN NOT n.phantom AND (NOT n.available OR n.removed_in IS NOT NULL) THEN 'unavailable'
      WHEN s.needs = 'alive' AND NOT (n.phantom OR n.alive) THEN 'node_dead'
      WHEN s.needs = 'alive' AND NOT (n.phantom OR n.joined = 'confirmed') THEN 'not_joined'
      WHEN s.needs = 'dead' AND (n.phantom OR n.alive) THEN 'node_alive'
      WHEN f.n > 0 THEN 'frozen'
      WHEN l.deployment_id IN (SELECT id FROM held) THEN 'held'
      WHEN NOT a.enabled THEN 'paused'
      WHEN a.capacity = 0 THEN 'no_worker'
      WHEN s.not_before > now() THEN 'backoff'
      WHEN EXISTS (
        SELECT FROM unnest(s.disruption_budget_ids) AS b (id) JOIN budget_room r ON r.id = b.id
        WHERE r.free <= 0 AND NOT EXISTS (SELECT FROM down d WHERE d.disruption_budget_id = b.id AND d.node_id = s.node_id)) THEN 'budget'
      WHEN l.mode = 'chunk' AND u.n > 0 THEN 'chunk'
      WHEN l.max_running <= coalesce(u.n, 0) THEN 'lane'
      WHEN s.exclusive AND EXISTS (SELECT FROM running x WHERE x.node_id = s.node_id AND x.exclusive) THEN 'exclusive'
      WHEN a.open >= least($1, a.capacity) THEN 'room'
      ELSE 'next'
    END AS wait
  FROM looked JOIN step s ON s.id = looked.id JOIN concurrency_group l ON l.id = s.concurrency_group_id JOIN jig j ON j.name = s.jig
  JOIN node n ON n.id = s.node_id CROSS JOIN everywhere a
  CROSS JOIN LATERAL (SELECT a.capacity = 0 OR j.class IN (SELECT class FROM served) AS served) k
  LEFT JOIN running r ON r.step_id = s.id LEFT JOIN in_group u ON u.concurrency_group_id = s.concurrency_group_id LEFT JOIN frozen f ON f.node_id = s.node_id
),
counted AS MATERIALIZED (
  SELECT *, count(*) OVER (PARTITION BY wait) AS total, row_number() OVER (PARTITION BY wait ORDER BY since {way}, id {way}) AS place
  FROM waiting WHERE wait IS NOT NULL
)
SELECT c.wait, c.total, c.place, EXISTS (SELECT FROM cut WHERE cut.state = c.state) AS more,
  c.id AS step, c.state, c.since, s.noderole_id AS noderole, r.role, s.action, s.node_id AS node, n.fqdn, d.name AS deployment,
  s.failures, s.retries, s.error, CASE WHEN isfinite(s.not_before) THEN s.not_before END AS not_before,
  o.id AS run, o.state AS run_state, o.queued_at, w.name AS worker,
  CASE WHEN c.state = 'error' THEN (SELECT max(x.id) FROM run x WHERE x.step_id = c.id) END AS last_run
FROM counted c JOIN step s ON s.id = c.id JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = s.node_id
JOIN deployment d ON d.id = r.deployment_id
LEFT JOIN run o ON o.step_id = s.id AND o.ended_at IS NULL LEFT JOIN worker w ON w.id = o.worker_id
WHERE c.place <= CASE WHEN c.wait = $9 THEN $10::bigint ELSE $11::bigint END
ORDER BY c.wait, c.place
