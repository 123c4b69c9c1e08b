-- Admission ---------------------------------------------------------------------------------------
-- Whether a TODO step may start now, and if not, why. The claim, the list of pending steps and the
-- reasons of one step all use these functions. engine::anneal::admit is the model. A property test
-- compares the two (worker/tests/it/admission.rs).
--
-- PostgreSQL inlines each function into the statement that calls it, so conditions of the caller
-- use the indexes of the tables, and columns that the caller does not read cost nothing. This only
-- works if a function is one SELECT, STABLE, and without its own search path. Subqueries that do
-- not depend on the step run once per statement.

-- The columns of a result may differ from those of an earlier version.
DROP FUNCTION IF EXISTS deployments_on_hold();
DROP FUNCTION IF EXISTS live_workers();
DROP FUNCTION IF EXISTS run_admission(bigint);
DROP FUNCTION IF EXISTS concurrency_group_admission();
DROP FUNCTION IF EXISTS down_nodes();
DROP FUNCTION IF EXISTS disruption_budget_admission();
DROP FUNCTION IF EXISTS step_admission(bigint);

-- Whether the join of a step is satisfied, counted from the states of its parents. The rule is the
-- engine's anneal::step::count.
CREATE OR REPLACE FUNCTION join_holds(of uuid, join_kind text, join_n int, join_after text)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  counting bigint;
  enough bigint;
  ahead bigint;
BEGIN
  SELECT pg_catalog.count(*) FILTER (WHERE e.kind OPERATOR(pg_catalog.<>) 'order_only'),
    pg_catalog.count(*) FILTER (WHERE e.kind OPERATOR(pg_catalog.<>) 'order_only'
      AND (p.state OPERATOR(pg_catalog.=) 'active'
      OR (p.state OPERATOR(pg_catalog.=) 'error'
         AND join_holds.join_after OPERATOR(pg_catalog.=) 'end'))),
    pg_catalog.count(*) FILTER (WHERE e.kind OPERATOR(pg_catalog.=) 'order_only'
      AND p.skipped IS NULL
      AND p.state OPERATOR(pg_catalog.=) ANY (ARRAY['blocked', 'todo', 'transition']))
  INTO counting, enough, ahead
  FROM public.edge e JOIN public.step p ON p.id OPERATOR(pg_catalog.=) e.parent
    WHERE e.child OPERATOR(pg_catalog.=) join_holds.of;
  RETURN ahead OPERATOR(pg_catalog.=) 0 AND CASE join_holds.join_kind
    WHEN 'all' THEN enough OPERATOR(pg_catalog.=) counting
    WHEN 'any' THEN counting OPERATOR(pg_catalog.=) 0 OR enough OPERATOR(pg_catalog.>) 0
    ELSE enough OPERATOR(pg_catalog.>=) join_holds.join_n END;
END $$;

-- The deployments on hold, with their descendants.
CREATE OR REPLACE FUNCTION deployments_on_hold() RETURNS TABLE (id uuid)
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE on_hold AS (
    SELECT d.id FROM deployment d WHERE d.on_hold_by IS NOT NULL
    UNION
    SELECT d.id FROM deployment d JOIN on_hold h ON d.parent = h.id
  )
  SELECT h.id FROM on_hold h
$$;

-- The workers that lease runs. A draining worker takes no further runs.
CREATE OR REPLACE FUNCTION live_workers() RETURNS TABLE (capacity int, jigs text[])
LANGUAGE sql STABLE AS $$
  SELECT w.capacity, w.jigs FROM worker w WHERE w.phase = 'confirmed' AND w.lease_until > now()
    AND w.drain_since IS NULL
$$;

-- The limit of all steps. free: the number of runs that may start. draining: the open runs of
-- draining workers. They count for the limit, but use no slot of the capacity.
CREATE OR REPLACE FUNCTION run_admission(run_limit bigint)
RETURNS TABLE (
  enabled boolean, running bigint, draining bigint, capacity bigint, free bigint)
LANGUAGE sql STABLE AS $$
  SELECT h.enabled, r.running, r.draining, w.capacity,
    CASE WHEN h.enabled
      THEN greatest(0, least(run_limit, w.capacity + r.draining) - r.running) ELSE 0 END
  FROM head h
  CROSS JOIN (SELECT coalesce(sum(l.capacity), 0)::bigint AS capacity FROM live_workers() l) w
  CROSS JOIN (
    SELECT count(*) AS running, count(d.id) AS draining
    FROM run o LEFT JOIN worker d ON d.id = o.worker_id AND d.drain_since IS NOT NULL
      AND d.phase = 'confirmed' AND d.lease_until > now()
    WHERE o.ended_at IS NULL
  ) r
$$;

-- The limit of the steps in each concurrency group. A chunk starts after the previous one has
-- ended. A rolling group refills at once. free: the number of runs that may start; NULL: no limit.
CREATE OR REPLACE FUNCTION concurrency_group_admission()
RETURNS TABLE (
  id bigint, deployment_id uuid, running bigint, free bigint, on_hold boolean, chunk boolean,
  is_full boolean)
LANGUAGE sql STABLE AS $$
  SELECT g.id, g.deployment_id, c.running, g.max_running - c.running,
    g.deployment_id IN (SELECT d.id FROM deployments_on_hold() d),
    g.mode = 'chunk' AND c.running > 0,
    (g.max_running <= c.running) IS TRUE AND NOT (g.mode = 'chunk' AND c.running > 0)
  FROM concurrency_group g LEFT JOIN (
    SELECT o.concurrency_group_id, count(*) AS running FROM run o WHERE o.ended_at IS NULL
    GROUP BY o.concurrency_group_id
  ) r ON r.concurrency_group_id = g.id
  CROSS JOIN LATERAL (SELECT coalesce(r.running, 0) AS running) c
$$;

-- The nodes that count against a disruption budget: they are dead, or one of their steps in the
-- budget runs, or has failed since its last success.
CREATE OR REPLACE FUNCTION down_nodes() RETURNS TABLE (disruption_budget_id bigint, node_id uuid)
LANGUAGE sql STABLE AS $$
  SELECT DISTINCT b.id, s.node_id
  FROM step s CROSS JOIN LATERAL unnest(s.disruption_budget_ids) AS b (id)
  WHERE s.disruption_budget_ids <> '{}'
    AND (s.state IN ('transition', 'error') OR s.failures > 0 OR NOT s.node_up)
$$;

-- free: the number of further nodes that may be down.
CREATE OR REPLACE FUNCTION disruption_budget_admission()
RETURNS TABLE (id bigint, down bigint, free bigint)
LANGUAGE sql STABLE AS $$
  SELECT b.id, count(d.node_id), b.max_down - count(d.node_id)
  FROM disruption_budget b LEFT JOIN down_nodes() d ON d.disruption_budget_id = b.id
  GROUP BY b.id
$$;

-- TODO steps for which the down nodes of an exhausted budget wait, if no step of these nodes can
-- start before. One of them may exceed the budget. Otherwise the nodes would wait forever, because
-- the budget is free again only when they are up.
CREATE OR REPLACE FUNCTION awaited_steps() RETURNS TABLE (disruption_budget_id bigint, step_id uuid)
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE down AS (
    SELECT d.disruption_budget_id AS budget, s.id, s.state, s.failures, s.node_up
    FROM disruption_budget_admission() a
    JOIN down_nodes() d ON d.disruption_budget_id = a.id
    JOIN step s ON s.node_id = d.node_id AND a.id = ANY (s.disruption_budget_ids)
    WHERE a.free <= 0
  ),
  above AS (
    SELECT d.budget, d.id FROM down d
    WHERE d.state = 'blocked' AND d.failures > 0 AND d.budget NOT IN (
      SELECT o.budget FROM down o WHERE NOT (o.node_up AND o.state IN ('blocked', 'active')))
    UNION
    SELECT a.budget, p.id FROM above a
    JOIN edge e ON e.child = a.id JOIN step p ON p.id = e.parent
    WHERE p.state IN ('blocked', 'todo')
  )
  SELECT a.budget, a.id FROM above a JOIN step s ON s.id = a.id WHERE s.state = 'todo'
$$;

-- Why the node of a step does not meet the needs of the step. Empty if it does.
CREATE OR REPLACE FUNCTION node_reasons(
  needs text, phantom boolean, removed_in bigint, available boolean, alive boolean, joined text)
RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
  SELECT pg_catalog.array_remove(ARRAY[
    CASE WHEN NOT phantom AND (NOT available OR removed_in IS NOT NULL) THEN 'maintenance' END,
    CASE needs
      WHEN 'alive' THEN CASE WHEN NOT (phantom OR alive) THEN 'node_dead'
        WHEN NOT (phantom OR joined = 'confirmed') THEN 'not_joined' END
      WHEN 'dead' THEN CASE WHEN phantom OR alive THEN 'node_alive' END
    END], NULL)
$$;

CREATE OR REPLACE FUNCTION node_fits(
  needs text, phantom boolean, removed_in bigint, available boolean, alive boolean, joined text)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT public.node_reasons(needs, phantom, removed_in, available, alive, joined) = '{}'
$$;

-- Every step, each rule that would prevent its start if it is TODO, and the first of them in the
-- order of engine::anneal::PendingReason. reason is NULL if it may start. run_limit: the maximum
-- number of open runs.
CREATE OR REPLACE FUNCTION step_admission(run_limit bigint)
RETURNS TABLE (
  step_id uuid, noderole_id uuid, node_id uuid, concurrency_group_id bigint, state text,
  priority int, since timestamptz, rank int, is_exclusive boolean, disruption_budget_ids bigint[],
  node_fits boolean,
  needs_no_run boolean, unknown boolean, jig boolean, no_worker_for_jig boolean, node_reasons text[],
  node_blocked boolean, on_hold boolean, paused boolean, no_worker boolean, backoff boolean,
  disruption_budget boolean, chunk boolean, concurrency_group boolean, exclusive boolean, other_action boolean,
  run_limit boolean, reason text)
LANGUAGE sql STABLE AS $$
  SELECT s.id, s.noderole_id, s.node_id, s.concurrency_group_id, s.state,
    s.priority, s.since, s.rank, s.exclusive, s.disruption_budget_ids, s.node_fits, f.*, CASE
      WHEN f.needs_no_run THEN 'no_run_needed'
      WHEN f.unknown THEN 'unknown'
      WHEN f.jig THEN 'jig'
      WHEN f.no_worker_for_jig THEN 'no_worker_for_jig'
      WHEN NOT s.node_fits THEN f.node_reasons[1]
      WHEN f.node_blocked THEN 'node_blocked'
      WHEN f.on_hold THEN 'on_hold'
      WHEN f.paused THEN 'paused'
      WHEN f.no_worker THEN 'no_worker'
      WHEN f.backoff THEN 'backoff'
      WHEN f.disruption_budget THEN 'disruption_budget'
      WHEN f.chunk THEN 'chunk'
      WHEN f.concurrency_group THEN 'concurrency_group'
      WHEN f.exclusive THEN 'exclusive'
      WHEN f.other_action THEN 'other_action'
      WHEN f.run_limit THEN 'run_limit'
      -- Last, because it reads the parents. Only a step with a wrong count is TODO before them.
      WHEN NOT join_holds(s.id, s.join_kind, s.join_n, s.join_after) THEN 'unknown'
    END
  FROM step s CROSS JOIN LATERAL (
    SELECT
      -- It becomes ACTIVE without a run. It remains from an unfinished batch.
      s.immediate OR s.skipped IS NOT NULL
        OR (s.applied_generation = s.generation AND (s.destructive OR s.cause IS NULL)) AS needs_no_run,
      s.disruption_budget_ids <> '{}' AND EXISTS (
        SELECT FROM unnest(s.disruption_budget_ids) AS b (id)
        WHERE NOT EXISTS (SELECT FROM disruption_budget d WHERE d.id = b.id)) AS unknown,
      s.jig IN (SELECT j.name FROM jig j WHERE NOT j.active) AS jig,
      -- Without any worker, no_worker applies.
      s.jig IN (
        SELECT j.name FROM jig j
        WHERE NOT EXISTS (SELECT FROM live_workers() l WHERE j.class = ANY (l.jigs))
          AND EXISTS (SELECT FROM live_workers() l WHERE l.capacity > 0)) AS no_worker_for_jig,
      CASE WHEN s.node_fits THEN '{}' ELSE (
        SELECT node_reasons(s.needs, n.phantom, n.removed_in, n.available, n.alive, n.joined)
        FROM node n WHERE n.id = s.node_id) END AS node_reasons,
      s.node_id IN (
        SELECT e.node_id FROM step e WHERE e.state = 'error' AND e.blocks_node) AS node_blocked,
      s.concurrency_group_id IN (
        SELECT g.id FROM concurrency_group_admission() g WHERE g.on_hold) AS on_hold,
      NOT (SELECT r.enabled FROM run_admission(run_limit) r) AS paused,
      0 = (SELECT r.capacity FROM run_admission(run_limit) r) AS no_worker,
      s.not_before > now() AS backoff,
      -- A node that is down already may run its steps.
      s.disruption_budget_ids <> '{}' AND EXISTS (
        SELECT FROM unnest(s.disruption_budget_ids) AS b (id)
        WHERE b.id IN (SELECT d.id FROM disruption_budget_admission() d WHERE d.free <= 0)
          AND (b.id, s.node_id) NOT IN (
            SELECT d.disruption_budget_id, d.node_id FROM down_nodes() d)
          AND (b.id, s.id) NOT IN (
            SELECT a.disruption_budget_id, a.step_id FROM awaited_steps() a)
        ) AS disruption_budget,
      s.concurrency_group_id IN (
        SELECT g.id FROM concurrency_group_admission() g WHERE g.chunk) AS chunk,
      s.concurrency_group_id IN (
        SELECT g.id FROM concurrency_group_admission() g WHERE g.is_full) AS concurrency_group,
      s.exclusive AND s.node_id IN (
        SELECT r.node_id FROM run r WHERE r.exclusive AND r.ended_at IS NULL) AS exclusive,
      -- One action of a noderole at a time. Few steps have another action than run, so they have
      -- an index of their own.
      EXISTS (
        SELECT FROM step o JOIN run r ON r.step_id = o.id AND r.ended_at IS NULL
        WHERE o.noderole_id = s.noderole_id AND o.action <> 'run' AND o.id <> s.id)
      OR s.action <> 'run' AND EXISTS (
        SELECT FROM step o JOIN run r ON r.step_id = o.id AND r.ended_at IS NULL
        WHERE o.noderole_id = s.noderole_id AND o.action = 'run') AS other_action,
      (SELECT r.running >= least(run_limit, r.capacity + r.draining)
        FROM run_admission(run_limit) r
        WHERE r.capacity > 0) IS TRUE AS run_limit
  ) f
$$;
