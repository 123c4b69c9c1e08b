-- One round of a claim: moves the steps that may start now to TRANSITION and queues their runs. $1:
-- maximum number of open runs. $2: maximum number of steps per round. $3: seconds until a queued
-- run without a lease is lost. The caller holds CLAIM and shares APPLY. engine::anneal::admit
-- defines which steps may start.
WITH RECURSIVE held AS (
  SELECT id FROM deployment WHERE held_by IS NOT NULL
  UNION
  SELECT d.id FROM deployment d JOIN held ON d.parent = held.id
),
running AS MATERIALIZED (
  SELECT node_id, concurrency_group_id, exclusive FROM run WHERE ended_at IS NULL
),
slots AS MATERIALIZED (
  SELECT h.number, h.epoch,
    greatest(0, least($1, (
      SELECT coalesce(sum(capacity), 0) FROM worker WHERE phase = 'confirmed' AND lease_until > now()
    )) - (SELECT count(*) FROM running))::int AS everywhere
  FROM head h WHERE h.enabled
),
room AS MATERIALIZED (
  SELECT *, least($2, everywhere)::int AS free FROM slots
),
served AS MATERIALIZED (
  SELECT DISTINCT unnest(jigs) AS class FROM worker WHERE phase = 'confirmed' AND lease_until > now()
),
in_group AS MATERIALIZED (
  SELECT concurrency_group_id, count(*)::int AS n FROM running GROUP BY concurrency_group_id
),
-- A chunk starts after the previous one has ended. A rolling concurrency group refills at once.
open_group AS MATERIALIZED (
  SELECT l.id, l.deployment_id, d.priority, least(room.free, l.max_running - coalesce(u.n, 0)) AS free
  FROM room CROSS JOIN concurrency_group l JOIN deployment d ON d.id = l.deployment_id LEFT JOIN in_group u ON u.concurrency_group_id = l.id
  WHERE room.free > 0
    AND l.deployment_id NOT IN (SELECT id FROM held)
    AND (l.max_running IS NULL OR l.max_running > coalesce(u.n, 0))
    AND (l.mode = 'rolling' OR u.n IS NULL)
),
-- A node counts against a disruption budget if it is dead, or if one of its steps runs or has
-- failed since its last success.
down AS MATERIALIZED (
  SELECT DISTINCT b.id AS disruption_budget_id, s.node_id
  FROM step s CROSS JOIN LATERAL unnest(s.disruption_budget_ids) AS b (id)
  WHERE s.disruption_budget_ids <> '{}' AND (s.state IN ('transition', 'error') OR s.failures > 0 OR NOT s.node_up)
),
budget_room AS MATERIALIZED (
  SELECT b.id, b.max_down - count(d.node_id)::int AS free
  FROM disruption_budget b LEFT JOIN down d ON d.disruption_budget_id = b.id GROUP BY b.id
),
candidate AS MATERIALIZED (
  SELECT c.*, l.deployment_id
  FROM open_group l CROSS JOIN LATERAL (
    SELECT s.id, s.node_id, s.rank, s.priority + l.priority AS priority, s.since, s.exclusive, s.disruption_budget_ids
    FROM step s JOIN jig j ON j.name = s.jig AND j.active AND j.class IN (SELECT class FROM served)
    WHERE s.concurrency_group_id = l.id AND s.state = 'todo' AND s.node_fits AND s.not_before <= now()
      -- These become ACTIVE without a run. They remain from an unfinished batch.
      AND NOT (s.immediate OR s.skipped IS NOT NULL
               OR (s.applied_generation = s.generation AND (s.destructive OR s.cause IS NULL)))
      AND NOT (s.exclusive AND EXISTS (
        SELECT FROM running r WHERE r.node_id = s.node_id AND r.exclusive))
      -- One action of a noderole at a time.
      AND NOT EXISTS (
        SELECT FROM step o JOIN run r ON r.step_id = o.id AND r.ended_at IS NULL
        WHERE o.noderole_id = s.noderole_id AND o.id <> s.id)
      AND NOT EXISTS (
        SELECT FROM step e WHERE e.node_id = s.node_id AND e.state = 'error' AND e.freezes_node AND e.id <> s.id)
      AND (s.disruption_budget_ids = '{}' OR NOT EXISTS (
        SELECT FROM unnest(s.disruption_budget_ids) AS b (id) LEFT JOIN budget_room r ON r.id = b.id
        WHERE coalesce(r.free, 0) <= 0
          AND NOT EXISTS (SELECT FROM down d WHERE d.disruption_budget_id = b.id AND d.node_id = s.node_id)))
    ORDER BY s.priority DESC, s.since, s.rank, s.id
    LIMIT l.free
  ) c
),
-- Of several exclusive steps of one node, the first.
one_each AS (
  SELECT DISTINCT ON (CASE WHEN exclusive THEN node_id ELSE id END) *
  FROM candidate
  ORDER BY CASE WHEN exclusive THEN node_id ELSE id END, priority DESC, since, rank, id
),
-- Steps on nodes that would exceed a disruption budget.
over AS (
  SELECT x.id FROM (
    SELECT o.id, r.free,
      dense_rank() OVER (PARTITION BY b.id ORDER BY n.priority DESC, n.since, n.rank, n.id) AS place
    FROM one_each o CROSS JOIN LATERAL unnest(o.disruption_budget_ids) AS b (id) JOIN budget_room r ON r.id = b.id
    -- All steps of a node have the position of its first one.
    CROSS JOIN LATERAL (
      SELECT f.priority, f.since, f.rank, f.id FROM one_each f
      WHERE f.node_id = o.node_id AND b.id = ANY (f.disruption_budget_ids)
      ORDER BY f.priority DESC, f.since, f.rank, f.id LIMIT 1
    ) n
    WHERE NOT EXISTS (SELECT FROM down d WHERE d.disruption_budget_id = b.id AND d.node_id = o.node_id)
  ) x WHERE x.place > x.free
),
-- Deployments take turns: the position of a step is the number of runs and earlier steps of its
-- deployment.
fair AS (
  SELECT o.id, o.priority, o.since, o.rank,
    coalesce(u.n, 0) + row_number() OVER (
      PARTITION BY o.deployment_id ORDER BY o.priority DESC, o.since, o.rank, o.id) AS turn
  FROM one_each o LEFT JOIN (
    SELECT l.deployment_id, sum(i.n) AS n FROM in_group i JOIN concurrency_group l ON l.id = i.concurrency_group_id GROUP BY 1
  ) u USING (deployment_id)
  WHERE o.id NOT IN (SELECT id FROM over)
),
pick AS MATERIALIZED (
  SELECT id FROM fair ORDER BY priority DESC, turn, since, rank, id LIMIT (SELECT free FROM room)
),
locked AS MATERIALIZED (
  SELECT s.id FROM step s WHERE s.id IN (SELECT id FROM pick) AND s.state = 'todo' AND s.node_fits
    -- The guard on runs checks this too. Without it, one step with a wrong count would block all
    -- others.
    AND join_holds(s.id, s.join_kind, s.join_n, s.join_after)
  ORDER BY s.rank, s.id FOR UPDATE
),
moved AS (
  UPDATE step s SET state = 'transition', since = now() FROM locked WHERE s.id = locked.id RETURNING s.*
),
started AS (
  INSERT INTO run (step_id, node_id, concurrency_group_id, generation, content_hash, blueprint_number, epoch, exclusive, cause, cause_by, failures,
    lease_until)
  SELECT m.id, m.node_id, m.concurrency_group_id, m.generation, m.content_hash, room.number, room.epoch, m.exclusive, m.cause, m.cause_by,
    m.failures, now() + make_interval(secs => $3)
  FROM moved m JOIN fair f ON f.id = m.id CROSS JOIN room ORDER BY f.priority DESC, m.rank, m.id
  RETURNING id, step_id
)
SELECT room.everywhere AS room, r.id AS run, m.noderole_id AS noderole, n.deployment_id AS deployment
FROM room CROSS JOIN started r JOIN moved m ON m.id = r.step_id JOIN noderole n ON n.id = m.noderole_id
ORDER BY r.id
