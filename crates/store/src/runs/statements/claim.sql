-- One round of a claim: moves the steps that may start now to TRANSITION and queues their runs. $1:
-- maximum number of open runs. $2: maximum number of steps per round. $3: seconds until a queued
-- run without a lease is lost. The caller holds CLAIM and shares APPLY.
--
-- step_admission decides which steps may start. The claim adds limits between the steps that it
-- starts together, and their order (engine::anneal::admit).
WITH room AS MATERIALIZED (
  SELECT h.number, h.epoch, a.free::int AS everywhere, least($2, a.free)::int AS free
  FROM head h CROSS JOIN run_admission($1) a WHERE h.enabled
),
every_group AS MATERIALIZED (
  SELECT g.* FROM concurrency_group_admission() g
),
open_group AS MATERIALIZED (
  SELECT g.id, g.deployment_id, d.priority, least(room.free, g.free) AS free
  FROM room CROSS JOIN every_group g JOIN deployment d ON d.id = g.deployment_id
  WHERE room.free > 0 AND NOT (g.on_hold OR g.chunk OR g.is_full)
),
candidate AS MATERIALIZED (
  SELECT c.*, g.deployment_id
  FROM open_group g CROSS JOIN LATERAL (
    SELECT a.step_id AS id, a.noderole_id, a.node_id, a.rank, a.priority + g.priority AS priority,
      a.since, a.is_exclusive AS exclusive, a.disruption_budget_ids
    FROM step_admission($1) a
    WHERE a.concurrency_group_id = g.id AND a.state = 'todo' AND a.node_fits AND a.reason IS NULL
    ORDER BY a.priority DESC, a.since, a.rank, a.step_id
    LIMIT g.free
  ) c
),
-- The first of several steps of one noderole.
one_action AS (
  SELECT DISTINCT ON (noderole_id) * FROM candidate
  ORDER BY noderole_id, priority DESC, since, rank, id
),
-- The first of several exclusive steps of one node.
one_each AS (
  SELECT DISTINCT ON (CASE WHEN exclusive THEN node_id ELSE id END) *
  FROM one_action
  ORDER BY CASE WHEN exclusive THEN node_id ELSE id END, priority DESC, since, rank, id
),
-- Steps on nodes that would exceed a disruption budget. The first awaited step may.
over AS (
  SELECT x.id FROM (
    SELECT o.id, r.free,
      dense_rank() OVER (PARTITION BY b.id ORDER BY n.priority DESC, n.since, n.rank, n.id) AS position,
      a.step_id IS NOT NULL AND 1 = row_number() OVER (
        PARTITION BY b.id, a.step_id IS NULL ORDER BY o.priority DESC, o.since, o.rank, o.id) AS may_exceed
    FROM one_each o CROSS JOIN LATERAL unnest(o.disruption_budget_ids) AS b (id) JOIN disruption_budget_admission() r ON r.id = b.id
    LEFT JOIN awaited_steps() a ON a.disruption_budget_id = b.id AND a.step_id = o.id
    -- All steps of a node have the position of its first one.
    CROSS JOIN LATERAL (
      SELECT f.priority, f.since, f.rank, f.id FROM one_each f
      WHERE f.node_id = o.node_id AND b.id = ANY (f.disruption_budget_ids)
      ORDER BY f.priority DESC, f.since, f.rank, f.id LIMIT 1
    ) n
    WHERE o.disruption_budget_ids <> '{}'
      AND NOT EXISTS (SELECT FROM down_nodes() d WHERE d.disruption_budget_id = b.id AND d.node_id = o.node_id)
  ) x WHERE x.position > x.free AND NOT x.may_exceed
),
-- Deployments take turns: the position of a step is the number of runs and earlier steps of its
-- deployment.
fair AS (
  SELECT o.id, o.priority, o.since, o.rank,
    coalesce(u.n, 0) + row_number() OVER (
      PARTITION BY o.deployment_id ORDER BY o.priority DESC, o.since, o.rank, o.id) AS turn
  FROM one_each o LEFT JOIN (
    SELECT g.deployment_id, sum(g.running) AS n FROM every_group g GROUP BY 1
  ) u USING (deployment_id)
  WHERE o.id NOT IN (SELECT id FROM over)
),
pick AS MATERIALIZED (
  SELECT id FROM fair ORDER BY priority DESC, turn, since, rank, id LIMIT (SELECT free FROM room)
),
locked AS MATERIALIZED (
  SELECT s.id FROM step s WHERE s.id IN (SELECT id FROM pick) AND s.state = 'todo' AND s.node_fits
    -- step_admission checked it before. Here it also keeps the planner from reading all noderoles.
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
