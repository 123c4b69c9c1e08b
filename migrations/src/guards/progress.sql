-- Progress follows the state machine --------------------------------------------------------------
-- The rules of the engine's anneal::transition and of the claim, enforced against every application
-- connection:
-- - A step moves only together with its run or the result of its check, or with a cause.
-- - A run is only inserted for a step that is due.
-- - Output comes only from the end of a run.
-- - A node's state comes only from a health check.
--
-- The owner may break them for manual repairs. Functions check for the owner last, before they
-- raise an error.

CREATE OR REPLACE FUNCTION owns_tables() RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT pg_has_role(current_user, c.relowner, 'USAGE') FROM pg_class c
    WHERE c.oid = 'public.step'::regclass
$$;

-- Whether a deployment or an ancestor is on hold. Its own search path would cost 0.1 ms per call,
-- so this function and join_holds qualify every name.
CREATE OR REPLACE FUNCTION on_hold(deployment uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  at uuid := deployment;
  holder uuid;
BEGIN
  WHILE at IS NOT NULL LOOP
    SELECT d.parent, d.on_hold_by INTO at, holder FROM public.deployment d
      WHERE d.id OPERATOR(pg_catalog.=) at;
    IF holder IS NOT NULL THEN
      RETURN true;
    END IF;
  END LOOP;
  RETURN false;
END $$;

-- The deployments on hold that a review moves a deployment out of: the name of the moved deployment,
-- that of the deployment on hold, and the person who put it on hold. Such a move would end the hold
-- for the moved part, without an operator of the deployment on hold. A hold of the moved deployment
-- itself moves with it. The rows must be those from before the commit, because a commit that removes
-- a deployment also ends its hold.
CREATE OR REPLACE FUNCTION left_holds(review bigint)
RETURNS TABLE (name text, on_hold text, held_by text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  WITH RECURSIVE placed AS MATERIALIZED (
    SELECT x.id, (SELECT convert_from(o.body, 'UTF8')::jsonb ->> 'parent' FROM object o
      WHERE o.hash = x.new_hash)::uuid AS parent
    FROM review_document x
    WHERE x.review_id = review AND x.kind = 'deployment' AND x.new_hash IS NOT NULL),
  moved AS MATERIALIZED (
    SELECT d.id, d.name, d.parent AS was, p.parent AS is_now FROM placed p
    JOIN deployment d ON d.id = p.id WHERE d.parent <> p.parent),
  was_above AS (
    SELECT m.id, m.was AS above FROM moved m
    UNION
    SELECT w.id, d.parent FROM was_above w JOIN deployment d ON d.id = w.above
    WHERE d.parent IS NOT NULL),
  is_above AS (
    SELECT m.id, m.is_now AS above FROM moved m
    UNION
    SELECT n.id, u.parent FROM is_above n CROSS JOIN LATERAL (
      SELECT p.parent FROM placed p WHERE p.id = n.above
      UNION ALL
      SELECT d.parent FROM deployment d
      WHERE d.id = n.above AND NOT EXISTS (SELECT FROM placed p WHERE p.id = d.id)) u
    WHERE u.parent IS NOT NULL)
  SELECT m.name, h.name, who.name FROM was_above w
  JOIN moved m ON m.id = w.id
  JOIN deployment h ON h.id = w.above AND h.on_hold_by IS NOT NULL
  JOIN person who ON who.id = h.on_hold_by
  WHERE NOT EXISTS (SELECT FROM is_above n WHERE n.id = w.id AND n.above = h.id)
  ORDER BY m.name, h.name
$$;

-- One check per statement, over all rows that it changed. A run that this transaction ended is
-- found by ended_xid and by its time: a cluster restored from a dump restarts its transaction ids.
CREATE OR REPLACE FUNCTION guard_step_progress() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  bad record;
  epoch_now bigint := (SELECT h.epoch FROM head h);
  this xid8 := pg_current_xact_id();
BEGIN
  SELECT x.id, x.was, x.now_is, x.problem, x.code INTO bad FROM (
    SELECT n.id, o.state AS was, n.state AS now_is, CASE
        -- Output and results
        WHEN (n.output, n.output_run, n.results) IS DISTINCT FROM (o.output, o.output_run, o.results)
          AND NOT (
            n.state = 'gone' AND n.output IS NULL AND (n.results IS NULL OR n.results = o.results)
            OR o.state = 'gone' AND n.results IS NULL AND n.output IS NOT DISTINCT FROM o.output
            OR EXISTS (SELECT FROM run r WHERE r.step_id = n.id AND r.ended_xid = this
               AND r.ended_at = now()
                         AND r.result IS NOT DISTINCT FROM n.results
                         AND ((n.output, n.output_run) IS NOT DISTINCT FROM (o.output, o.output_run)
                              OR n.output_run = r.id AND r.outcome = 'succeeded'
                                 AND r.generation = n.generation)))
          THEN 'has output that none of its runs returned in this transaction'
        -- Applied generation
        WHEN n.applied_generation <> o.applied_generation AND NOT (
            o.state = 'gone' AND n.applied_generation = 0
            OR n.applied_generation = n.generation AND (
              (n.immediate OR n.skipped IS NOT NULL) AND n.state = 'active'
              OR o.state = 'transition' AND EXISTS (
                SELECT FROM run r WHERE r.step_id = n.id AND r.ended_xid = this
                  AND r.ended_at = now()
                  AND r.outcome = 'succeeded' AND r.generation = n.generation)))
          THEN 'is applied at a generation in which none of its runs just succeeded'
        WHEN n.state = o.state THEN NULL
        WHEN n.state = 'gone' THEN NULL
        WHEN o.state = 'gone' THEN CASE WHEN n.applied_generation = 0
          AND (n.state = 'blocked' OR n.state = 'transition'
            AND EXISTS (SELECT FROM run r WHERE r.step_id = n.id AND r.ended_at IS NULL)) THEN NULL
          ELSE 'is restored, but not in the state of a new step' END
        WHEN o.state = 'transition' THEN (
          SELECT CASE
              WHEN r.id IS NULL THEN
                'leaves TRANSITION, but none of its runs ended in this transaction'
              WHEN n.state = 'active' AND NOT (n.applied_generation = n.generation AND (
                  r.outcome = 'succeeded' AND r.generation = n.generation OR n.immediate
                    OR n.skipped IS NOT NULL
                  OR o.applied_generation = n.generation AND (n.destructive OR n.cause IS NULL)))
                THEN 'becomes ACTIVE, but its run did not succeed'
              WHEN n.state = 'error' AND r.outcome NOT IN ('failed', 'lost', 'canceled')
                THEN 'becomes ERROR, but its run did not fail'
              WHEN n.state IN ('todo', 'blocked') AND n.destructive AND r.generation = n.generation
                AND r.outcome <> 'unstarted'
                THEN 'is destructive and would run again, although its run may have done its work'
            END
          FROM (SELECT) one LEFT JOIN run r ON r.id = (
            SELECT max(e.id) FROM run e WHERE e.step_id = n.id AND e.ended_xid = this
              AND e.ended_at = now()))
        WHEN n.state = 'transition' THEN CASE WHEN o.state = 'todo' AND EXISTS (
            SELECT FROM run r WHERE r.step_id = n.id AND r.ended_at IS NULL AND r.state = 'queued'
              AND r.generation = n.generation) THEN NULL
          ELSE 'becomes TRANSITION without a run' END
        WHEN n.state = 'error' THEN CASE WHEN NOT (o.state = 'active'
            AND o.applied_generation = n.generation AND n.cause IS NULL AND NOT n.immediate
            AND n.skipped IS NULL AND was_just_checked(n.id, 'failing'))
          THEN 'becomes ERROR without a run or a failed check' END
        WHEN n.state = 'active' THEN CASE
            WHEN n.immediate OR n.skipped IS NOT NULL THEN
              CASE WHEN NOT join_holds(n.id, n.join_kind, n.join_n, n.join_after)
                THEN 'becomes ACTIVE before its parents' END
            -- A retry of a destructive step that its check made ERROR only ends the ERROR.
            WHEN o.state = 'error' AND NOT was_just_checked(n.id, 'passing')
              AND NOT (n.destructive AND acting_operates((SELECT l.deployment_id
                FROM concurrency_group l WHERE l.id = n.concurrency_group_id)))
              THEN 'becomes ACTIVE without a run or a check that passed'
            WHEN o.applied_generation = n.generation AND (n.destructive OR n.cause IS NULL)
              THEN NULL
            ELSE 'becomes ACTIVE without a run' END
        WHEN o.state = 'active' THEN CASE
            WHEN n.immediate OR n.skipped IS NOT NULL THEN NULL
            WHEN n.destructive AND o.applied_generation = n.generation
              THEN 'is destructive and applied, but would run again'
            WHEN n.cause IS NULL AND n.pending = 0 THEN 'would run again without a cause'
            WHEN n.cause LIKE 'check%' AND NOT was_just_checked(n.id, 'failing')
              THEN 'would run again for a check that did not fail' END
        WHEN o.state = 'error' THEN CASE
            WHEN n.immediate OR n.skipped IS NOT NULL THEN NULL
            WHEN n.cause IS NULL THEN CASE WHEN NOT (n.state = 'blocked'
                AND o.applied_generation = n.generation AND (was_just_checked(n.id, 'passing')
                  OR n.destructive AND acting_operates((SELECT l.deployment_id
                    FROM concurrency_group l WHERE l.id = n.concurrency_group_id))))
              THEN 'would run again without a cause' END
            WHEN n.cause LIKE 'check%' THEN 'would run again for a check, although it is in ERROR'
            WHEN NOT n.destructive OR EXISTS (
                SELECT FROM blueprint t WHERE t.xid = this AND t.epoch = epoch_now
                  AND t.number = n.generation) THEN NULL
            WHEN n.cause NOT LIKE 'retry%'
              THEN 'is destructive and in ERROR, but would run again without a retry'
            WHEN NOT acting_operates((SELECT l.deployment_id FROM concurrency_group l WHERE l.id = n.concurrency_group_id))
              THEN 'is destructive and in ERROR, but no operator of its deployment retries it' END
      END AS problem,
      CASE WHEN (n.output, n.output_run, n.results) IS DISTINCT FROM (o.output, o.output_run, o.results)
        THEN 'GY050' ELSE 'GY047' END AS code
    FROM is_now n JOIN was o ON o.id = n.id
    WHERE n.state <> o.state OR n.applied_generation <> o.applied_generation
      OR (n.output, n.output_run, n.results) IS DISTINCT FROM (o.output, o.output_run, o.results)) x
  WHERE x.problem IS NOT NULL LIMIT 1;
  IF bad.id IS NOT NULL AND NOT owns_tables() THEN
    RAISE EXCEPTION 'Step % (% to %) %', bad.id, bad.was, bad.now_is, bad.problem
      USING ERRCODE = bad.code,
        HINT =
          'A step changes state only with its run or with a cause. Retry it, or propose a re-run.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_step_progress AFTER UPDATE ON step
  REFERENCING OLD TABLE AS was NEW TABLE AS is_now
  FOR EACH STATEMENT EXECUTE FUNCTION guard_step_progress();

-- A retry or cancel names an operator of the deployment. A commit cancels the runs of steps that it
-- changes.
CREATE OR REPLACE FUNCTION guard_retried_by() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF owns_tables() THEN
    RETURN NULL;
  END IF;
  IF acting_operates((SELECT l.deployment_id FROM concurrency_group l WHERE l.id = NEW.concurrency_group_id)) THEN
    IF NEW.cause_by = (SELECT left(p.name, 200) FROM person p WHERE p.id = acting_person()) THEN
      RETURN NULL;
    END IF;
  END IF;
  RAISE EXCEPTION
    'Step % names % as the operator who retries it, but the transaction does not act for that '
    'operator', NEW.id, NEW.cause_by
    USING ERRCODE = 'GY035', HINT = 'Sign in as that person.';
END $$;
CREATE TRIGGER guard_retried_by AFTER UPDATE OF state, cause_by ON step FOR EACH ROW
  WHEN (NEW.cause_by IS NOT NULL AND (NEW.cause_by IS DISTINCT FROM OLD.cause_by
    OR OLD.state = 'error' AND NEW.state <> 'error'))
  EXECUTE FUNCTION guard_retried_by();

-- The engine cannot read another cause (anneal::step::Cause), and people read it.
CREATE OR REPLACE FUNCTION guard_cause() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT owns_tables() THEN
    RAISE EXCEPTION 'Step % has an unknown cause for a re-run: %', NEW.id, NEW.cause
      USING ERRCODE = 'GY047';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_cause AFTER UPDATE OF cause ON step FOR EACH ROW
  WHEN (NEW.cause IS DISTINCT FROM OLD.cause
    AND NEW.cause !~ '^(changed|slice|data|hook|drift|check|node_away|node_back|retry)( again)?$')
  EXECUTE FUNCTION guard_cause();

CREATE OR REPLACE FUNCTION guard_canceled_by() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF owns_tables() THEN
    RETURN NULL;
  END IF;
  IF NEW.superseded THEN
    IF NEW.error = 'canceled by the commit of blueprint ' || (current_commit()).number
       AND (SELECT s.generation FROM step s WHERE s.id = NEW.step_id) = (current_commit()).number
         THEN
      RETURN NULL;
    END IF;
  ELSIF acting_operates((SELECT l.deployment_id FROM concurrency_group l WHERE l.id = NEW.concurrency_group_id)) THEN
    IF NEW.error = 'canceled by ' || (SELECT p.name FROM person p WHERE p.id = acting_person())
      THEN
      RETURN NULL;
    END IF;
  END IF;
  RAISE EXCEPTION
    'Cannot cancel run %: the transaction does not act for the operator whom it names', NEW.id
    USING ERRCODE = 'GY035', HINT = 'Sign in as that person.';
END $$;
-- The end of a canceled run repeats the name that was written before.
CREATE TRIGGER guard_canceled_by AFTER UPDATE OF cancel_requested, superseded, error ON run
  FOR EACH ROW
  WHEN ((NEW.cancel_requested, NEW.superseded) IS DISTINCT FROM (OLD.cancel_requested,
    OLD.superseded)
        OR NEW.error IS DISTINCT FROM OLD.error
           AND (NEW.state <> 'ended' OR NEW.error LIKE 'canceled by %'))
  EXECUTE FUNCTION guard_canceled_by();

-- With a large step, these counters would reach their end, and later changes would fail.
CREATE OR REPLACE FUNCTION guard_step_counters() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT owns_tables() THEN
    RAISE EXCEPTION 'Failures and input version of step % rise by one at a time', NEW.id
      USING ERRCODE = 'GY047';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_step_counters AFTER UPDATE OF failures, input_version ON step FOR EACH ROW
  WHEN (NEW.failures > OLD.failures::bigint + 1
    OR NEW.input_version NOT IN (OLD.input_version, OLD.input_version::bigint + 1))
  EXECUTE FUNCTION guard_step_counters();

-- No code writes system data yet. It is empty at first and again when a noderole is restored.
CREATE OR REPLACE FUNCTION guard_system_data() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT owns_tables() THEN
    RAISE EXCEPTION 'The system data of noderole % does not come from a run or a hook', NEW.id
      USING ERRCODE = 'GY050';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_system_data AFTER INSERT ON noderole FOR EACH ROW
  WHEN (NEW.system_data <> '{}') EXECUTE FUNCTION guard_system_data();
CREATE TRIGGER guard_system_data_change AFTER UPDATE OF system_data ON noderole FOR EACH ROW
  WHEN (NEW.system_data IS DISTINCT FROM OLD.system_data
        AND NOT (OLD.disposition <> 'in_service' AND NEW.disposition = 'in_service'
          AND NEW.system_data = '{}'))
  EXECUTE FUNCTION guard_system_data();

-- Runs --------------------------------------------------------------------------------------------

-- Only a claim inserts a run, for a due step that the same statement moves to TRANSITION. The rules
-- are those of step_admission, without those that the new runs themselves affect: the disruption
-- budgets, and the limits of nodes and workers.
CREATE OR REPLACE FUNCTION guard_run_due() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE bad record;
BEGIN
  SELECT x.step_id, x.problem INTO bad FROM (
    SELECT r.step_id, CASE
        WHEN r.state <> 'queued' OR r.worker_id IS NOT NULL OR r.started_at IS NOT NULL
          OR r.cancel_requested OR r.superseded
             OR r.input IS NOT NULL OR r.surroundings IS NOT NULL OR r.result IS NOT NULL
                OR r.result_bytes <> 0 OR r.log_bytes <> 0
             OR r.error IS NOT NULL OR r.ended_xid IS NOT NULL OR r.queued_at <> now()
             OR r.lease_until NOT BETWEEN now() AND now() + interval '1 hour'
               THEN 'it is not a new queued run'
        WHEN s.state <> 'transition' THEN 'its step is ' || s.state
        WHEN r.node_id <> s.node_id THEN 'its node differs from the node of its step'
        WHEN r.concurrency_group_id <> s.concurrency_group_id THEN 'its concurrency group differs from the one of its step'
        WHEN (r.generation, r.content_hash, r.exclusive, r.cause, r.cause_by, r.failures)
          IS DISTINCT FROM
             (s.generation, s.content_hash, s.exclusive, s.cause, s.cause_by, s.failures)
               THEN 'its data differs from the data of its step'
        WHEN r.blueprint_number <> h.number OR r.epoch <> h.epoch
          THEN 'its target is not the one in force'
        WHEN a.paused THEN 'execution is off'
        WHEN a.needs_no_run THEN 'its step needs no run, or is already applied'
        WHEN s.destructive AND s.cause LIKE 'retry%' AND s.cause_by IS NULL
          THEN 'its retry names no person'
        WHEN a.backoff THEN 'its step waits for its next retry'
        WHEN a.jig THEN 'its jig is turned off'
        WHEN NOT node_fits(s.needs, n.phantom, n.removed_in, n.available, n.alive, n.joined) THEN
          'its node is in maintenance or does not meet the needs of its step'
        WHEN a.on_hold THEN 'its deployment is on hold'
        WHEN l.max_running < u.open THEN 'its concurrency group is full'
        WHEN l.mode = 'chunk' AND u.open > q.started
          THEN 'the previous chunk of its concurrency group is not done'
        WHEN a.node_blocked THEN 'a failed step blocks its node'
        WHEN NOT join_holds(s.id, s.join_kind, s.join_n, s.join_after)
          THEN 'a parent of its step is not done'
        WHEN a.other_action THEN 'another action of its noderole is running'
        WHEN s.action <> 'run' AND EXISTS (SELECT FROM noderole b WHERE b.id = s.noderole_id
          AND b.disposition = 'in_service') THEN 'its noderole is bound'
      END AS problem
    FROM added r JOIN step s ON s.id = r.step_id JOIN step_admission(0) a ON a.step_id = r.step_id
      JOIN node n ON n.id = s.node_id
    JOIN concurrency_group l ON l.id = s.concurrency_group_id CROSS JOIN head h
    LEFT JOIN (SELECT o.concurrency_group_id, count(*) AS open FROM run o WHERE o.ended_at IS NULL
      GROUP BY o.concurrency_group_id) u ON u.concurrency_group_id = l.id
    JOIN (SELECT c.concurrency_group_id, count(*) AS started FROM added c
      GROUP BY c.concurrency_group_id) q ON q.concurrency_group_id = r.concurrency_group_id) x
  WHERE x.problem IS NOT NULL LIMIT 1;
  IF bad.step_id IS NOT NULL AND NOT owns_tables() THEN
    RAISE EXCEPTION 'No run of step % may start: %', bad.step_id, bad.problem
      USING ERRCODE = 'GY048', HINT = 'A worker starts the run as soon as it is due.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_run_due AFTER INSERT ON run REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION guard_run_due();

-- Whether this connection has the server's role.
CREATE OR REPLACE FUNCTION is_server() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM database_role d JOIN pg_roles r ON r.rolname = d.name
                 WHERE d.purpose = 'server' AND pg_has_role(current_user, r.oid, 'USAGE'))
$$;

-- A hold or a switch also blocks the lease of runs that were queued before it.
CREATE OR REPLACE FUNCTION guard_run_state() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE problem text;
BEGIN
  IF OLD.state = 'queued' AND NEW.state = 'running' THEN
    SELECT CASE
        WHEN s.state <> 'transition' OR s.generation <> NEW.generation
          THEN 'its step does not wait for it'
        WHEN NOT h.enabled OR h.epoch <> NEW.epoch THEN 'execution is off, or a backup was restored'
        WHEN NEW.cancel_requested THEN 'its cancellation was requested'
        WHEN on_hold(l.deployment_id) THEN 'its deployment is on hold'
        WHEN NOT n.available THEN 'its node is in maintenance'
        WHEN NOT EXISTS (SELECT FROM worker w WHERE w.id = NEW.worker_id AND w.phase = 'confirmed')
          THEN 'its worker is not confirmed'
        WHEN EXISTS (SELECT FROM worker w WHERE w.id = NEW.worker_id AND w.drain_since IS NOT NULL)
          THEN 'its worker is draining'
      END INTO problem
    FROM step s JOIN concurrency_group l ON l.id = s.concurrency_group_id JOIN node n ON n.id = s.node_id CROSS JOIN head h
      WHERE s.id = NEW.step_id;
  ELSIF OLD.state = 'queued' AND NEW.state = 'ended' THEN
    problem := CASE WHEN NEW.outcome NOT IN ('unstarted', 'canceled') THEN 'it never started'
                WHEN NEW.outcome = 'canceled' AND NOT OLD.cancel_requested
                  THEN 'its cancellation was not requested' END;
  ELSIF OLD.state = 'running' AND NEW.state = 'ended' THEN
    -- Only workers know the outcome of a run. The server ends running runs only on nodes that its
    -- commit removes.
    problem := CASE WHEN NEW.outcome = 'late' THEN 'it was not lost before'
                WHEN is_server() AND NOT (NEW.outcome = 'lost' AND is_listed('node', NEW.node_id))
                  THEN 'its worker did not report this outcome' END;
  ELSE
    problem := 'a run changes only from queued to running to ended';
  END IF;
  IF problem IS NOT NULL AND NOT owns_tables() THEN
    RAISE EXCEPTION 'Run % cannot become %: %', OLD.id, coalesce(NEW.outcome, NEW.state), problem
      USING ERRCODE = 'GY049';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_run_state AFTER UPDATE OF state ON run FOR EACH ROW
  WHEN (NEW.state <> OLD.state) EXECUTE FUNCTION guard_run_state();

-- A step in TRANSITION has an open run. Without one, nothing would ever move it again. The function
-- runs once for each ended run, and its own search path would cost 0.1 ms per call.
CREATE OR REPLACE FUNCTION guard_run_leaves_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM public.step s WHERE s.id OPERATOR(pg_catalog.=) NEW.step_id
       AND s.state OPERATOR(pg_catalog.=) 'transition')
     AND NOT EXISTS (SELECT FROM public.run r WHERE r.step_id OPERATOR(pg_catalog.=) NEW.step_id
       AND r.ended_at IS NULL)
     AND NOT public.owns_tables() THEN
    RAISE EXCEPTION 'Run % ended, but step % stays in TRANSITION', NEW.id, NEW.step_id
      USING ERRCODE = 'GY049', HINT = 'Change the step in the same transaction.';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_run_leaves_step AFTER UPDATE OF state ON run
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (OLD.state <> 'ended' AND NEW.state = 'ended') EXECUTE FUNCTION guard_run_leaves_step();

CREATE OR REPLACE FUNCTION guard_run_stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.ended_xid := pg_catalog.pg_current_xact_id();
  RETURN NEW;
END $$;
CREATE TRIGGER guard_run_stamp BEFORE UPDATE OF state ON run FOR EACH ROW
  WHEN (OLD.state <> 'ended' AND NEW.state = 'ended') EXECUTE FUNCTION guard_run_stamp();
CREATE TRIGGER guard_run_xid BEFORE UPDATE OF ended_xid ON run FOR EACH STATEMENT
  EXECUTE FUNCTION guard_run();

-- A run keeps its worker, its start and its token. Only if the worker let the lease expire, another
-- confirmed worker may adopt the run, and only while the run still counts for its step: the same
-- epoch and generation, in TRANSITION, not canceled. Without an adoption, the run could be ended as
-- lost at the same moment, so an adoption takes the run from no worker that still has it.
CREATE OR REPLACE FUNCTION guard_run_adoption() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE problem text;
BEGIN
  SELECT CASE
      WHEN OLD.state <> 'running' OR NEW.state <> 'running' THEN 'it is not running'
      WHEN NEW.worker_id = OLD.worker_id THEN 'its worker has it already'
      WHEN NEW.adoptions <> OLD.adoptions + 1 THEN 'the adoption is not counted'
      WHEN NEW.started_at <> OLD.started_at THEN 'it started only once'
      WHEN OLD.lease_until >= now() THEN 'the lease of its worker is valid'
      WHEN NEW.cancel_requested THEN 'its cancellation was requested'
      WHEN h.epoch <> NEW.epoch THEN 'a backup was restored'
      WHEN s.state <> 'transition' OR s.generation <> NEW.generation
        THEN 'its step does not wait for it'
      WHEN NOT EXISTS (SELECT FROM worker w WHERE w.id = NEW.worker_id AND w.phase = 'confirmed'
        AND w.lease_until > now()) THEN 'the adopting worker is not confirmed'
      WHEN EXISTS (SELECT FROM worker w WHERE w.id = NEW.worker_id AND w.drain_since IS NOT NULL)
        THEN 'the adopting worker is draining'
    END INTO problem
  FROM step s CROSS JOIN head h WHERE s.id = NEW.step_id;
  IF problem IS NOT NULL AND NOT owns_tables() THEN
    RAISE EXCEPTION 'Run % cannot be adopted: %', OLD.id, problem
      USING ERRCODE = 'GY049', HINT = 'Another worker adopts a run when its lease has expired.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_run_adoption AFTER UPDATE OF worker_id, adoptions ON run FOR EACH ROW
  WHEN (NEW.adoptions <> OLD.adoptions
    OR OLD.state = 'running' AND NEW.worker_id IS DISTINCT FROM OLD.worker_id)
  EXECUTE FUNCTION guard_run_adoption();

-- A run's input, worker and result are written once. Long values are compared only in states where
-- they may not change. Only forget_excess_results deletes results of ended runs. A lease lasts at
-- most one hour (GANTRY_WORKER_LEASE): a longer one would hide a lost worker.
CREATE OR REPLACE FUNCTION guard_run_fields() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT owns_tables() THEN
    RAISE EXCEPTION
      'Input, worker and result of run % are written once, while it runs or when it ends. A lease '
      'lasts at most one hour', OLD.id USING ERRCODE = 'GY049';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_run_fields AFTER UPDATE ON run FOR EACH ROW WHEN (
    ((NEW.worker_id, NEW.started_at) IS DISTINCT FROM (OLD.worker_id, OLD.started_at)
       AND NOT (OLD.state = 'queued' AND NEW.state = 'running')
       -- guard_run_adoption
       AND NOT (OLD.state = 'running' AND NEW.adoptions = OLD.adoptions + 1))
    OR (OLD.cancel_requested AND NOT NEW.cancel_requested)
       OR (OLD.superseded AND NOT NEW.superseded)
    OR NEW.log_bytes < OLD.log_bytes
    OR NEW.out_bytes < OLD.out_bytes OR NEW.err_bytes < OLD.err_bytes
    OR (OLD.state = 'ended' AND NOT (OLD.outcome = 'lost' AND NEW.outcome = 'late')
        AND ((NEW.outcome, NEW.error, NEW.result_bytes) IS DISTINCT FROM (OLD.outcome, OLD.error,
          OLD.result_bytes)
             OR NEW.result IS DISTINCT FROM OLD.result))
    OR (NEW.lease_until IS DISTINCT FROM OLD.lease_until AND NEW.state <> 'ended'
        AND NEW.lease_until NOT BETWEEN now() AND now() + interval '1 hour')
    OR (NEW.state <> 'ended' AND (NEW.result IS NOT NULL OR NEW.result_bytes <> 0))
    OR (OLD.state <> 'running' AND (NEW.input, NEW.surroundings) IS DISTINCT FROM (OLD.input,
      OLD.surroundings)))
  EXECUTE FUNCTION guard_run_fields();

-- A log only grows at its end: while its run is open, and for as long afterwards as a worker
-- retries to write the rest.
CREATE OR REPLACE FUNCTION guard_run_log() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE r record;
BEGIN
  SELECT x.state, x.ended_at, x.worker_id, x.log_bytes INTO r FROM run x WHERE x.id = NEW.run_id;
  IF (r.worker_id IS NOT NULL
     AND (r.state = 'running' OR r.ended_at > now() - interval '10 minutes')
      AND (NEW.at_offset = r.log_bytes
           OR EXISTS (SELECT FROM run_log l WHERE l.run_id = NEW.run_id
              AND l.at_offset = NEW.at_offset))) IS NOT TRUE
     AND NOT owns_tables() THEN
    RAISE EXCEPTION 'Run % cannot write to its log at offset %', NEW.run_id, NEW.at_offset
      USING ERRCODE = 'GY051',
        HINT = 'A log only grows at its end, while a worker has leased the run.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_run_log BEFORE INSERT ON run_log FOR EACH ROW EXECUTE FUNCTION guard_run_log();

-- Nodes -------------------------------------------------------------------------------------------

-- A node is alive, and its running processes known, only after a health check reached it. The row
-- of the check is written first, with the database's time. A local node is as alive as its worker
-- and never changes.
CREATE OR REPLACE FUNCTION guard_node_progress() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  last_check record;
  reached boolean;
  problem text;
BEGIN
  SELECT l.reached, l.at INTO last_check FROM health_check l WHERE l.node_id = NEW.id
    ORDER BY l.at DESC LIMIT 1;
  reached := NEW.transport = 'ssh'
    AND coalesce(last_check.reached AND last_check.at > now() - interval '10 minutes', false);
  problem := CASE
    WHEN NEW.removed_in IS NOT NULL AND OLD.removed_in IS NULL AND (NOT NEW.alive OR NEW.phantom)
      AND (NEW.joined = 'none' OR NEW.phantom) THEN NULL
    WHEN NEW.alive AND NOT OLD.alive AND NOT reached THEN 'is alive, but no health check reached it'
    WHEN OLD.alive AND NOT NEW.alive AND (last_check.at > now() - interval '10 minutes') IS NOT TRUE
      THEN 'is dead, but no recent health check reported it'
    WHEN NEW.joined <> OLD.joined AND NEW.joined = 'confirmed' AND NOT (NEW.alive AND reached)
      THEN 'is confirmed, but no health check reached it'
    WHEN NEW.joined <> OLD.joined AND NEW.joined NOT IN ('none', 'welcomed', 'confirmed')
      THEN 'has an unknown join state'
    WHEN (NEW.boot_id, NEW.last_seen_at, NEW.joined_at) IS DISTINCT FROM (OLD.boot_id,
      OLD.last_seen_at, OLD.joined_at) AND NOT reached
      THEN 'was seen, but no health check reached it'
    -- With a large step, a counter would reach its end, and later changes would fail.
    WHEN NEW.connection_no NOT IN (OLD.connection_no, OLD.connection_no::bigint + 1)
      OR NEW.report_no NOT IN (OLD.report_no, OLD.report_no::bigint + 1)
      OR NEW.version NOT IN (OLD.version, OLD.version::bigint + 1)
      THEN 'has a connection, report or version number that is not the next one'
    WHEN NEW.contradicting_checks > greatest(OLD.contradicting_checks::bigint + 1, 2)
      THEN 'has more contradicting health checks than there were'
    -- A time in the future would end its health checks.
    WHEN NEW.health_checked_at > now() AND NEW.health_checked_at IS DISTINCT FROM OLD.health_checked_at
      THEN 'was checked in the future'
    WHEN NEW.facts IS DISTINCT FROM OLD.facts AND NEW.facts IS DISTINCT FROM coalesce((
        SELECT jsonb_object_agg(e.key, e.value ORDER BY f.source)
          FROM node_fact f, jsonb_each(f.facts) e WHERE f.node_id = NEW.id), '{}')
      THEN 'has facts that no source reported'
  END;
  IF problem IS NOT NULL AND NOT owns_tables() THEN
    RAISE EXCEPTION 'Node % %', NEW.fqdn, problem
      USING ERRCODE = 'GY052',
        HINT =
          'A worker checks the node at its interval, or immediately after a report from the node.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_node_progress
  AFTER UPDATE OF alive, joined, boot_id, last_seen_at, joined_at, connection_no, report_no,
    version, contradicting_checks, health_checked_at, facts ON node
    FOR EACH ROW
  WHEN ((NEW.alive, NEW.joined, NEW.boot_id, NEW.last_seen_at, NEW.joined_at, NEW.connection_no,
    NEW.report_no, NEW.version, NEW.facts) IS DISTINCT FROM
        (OLD.alive, OLD.joined, OLD.boot_id, OLD.last_seen_at, OLD.joined_at, OLD.connection_no,
          OLD.report_no, OLD.version, OLD.facts)
    OR NEW.contradicting_checks > greatest(OLD.contradicting_checks, 2)
    OR NEW.health_checked_at > now())
  EXECUTE FUNCTION guard_node_progress();

CREATE OR REPLACE FUNCTION guard_node_begins() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT owns_tables() THEN
    RAISE EXCEPTION 'Node % is new, so it cannot be alive or have facts yet', NEW.fqdn
      USING ERRCODE = 'GY052', HINT = 'Add it as not alive. A worker then checks it.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_node_begins AFTER INSERT ON node FOR EACH ROW
  WHEN (NOT NEW.phantom AND ((NEW.transport <> 'local' AND (NEW.alive OR NEW.joined <> 'none'))
    OR NEW.facts <> '{}'))
  EXECUTE FUNCTION guard_node_begins();

-- Facts name their source: a token of this node, or a run of this role on this node that succeeds
-- in this transaction.
CREATE OR REPLACE FUNCTION guard_node_fact() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  witnessed boolean;
BEGIN
  -- Two statements, because workers may not read tokens.
  IF NEW.source = 'node' THEN
    witnessed := EXISTS (SELECT FROM token t WHERE t.id = NEW.token_id AND t.kind = 'node'
      AND t.node_id = NEW.node_id);
  ELSE
    witnessed := EXISTS (
      SELECT FROM run r JOIN step s ON s.id = r.step_id JOIN noderole o ON o.id = s.noderole_id
      WHERE r.id = NEW.run_id AND s.node_id = NEW.node_id AND 'role ' || o.role = NEW.source
        AND r.outcome = 'succeeded' AND r.ended_xid = pg_current_xact_id()
        AND r.result -> 'facts' = NEW.facts);
  END IF;
  IF NOT witnessed AND NOT owns_tables() THEN
    RAISE EXCEPTION 'No report or run on node % returned these facts for source %', NEW.node_id,
      NEW.source USING ERRCODE = 'GY052';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_node_fact AFTER INSERT OR UPDATE ON node_fact FOR EACH ROW
  EXECUTE FUNCTION guard_node_fact();
