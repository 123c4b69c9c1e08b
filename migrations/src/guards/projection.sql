-- Rows match the documents ------------------------------------------------------------------------
-- A commit may only write rows of the documents that its review lists (checked per statement). At
-- its end, these rows match the documents exactly, by the rules of engine::blueprint::projection.
-- Genesis lists every document.
--
-- Removal steps follow from the change: a noderole that a listed document loses has one if its role
-- has the action `remove` and it may have run. See engine::blueprint::projection.
--
-- One exception: noderoles on other nodes whose deployment changes the data of their role. Their
-- steps get a new content hash and generation. Only the worker compares content_hash, because SQL
-- has no canonical JSON.

-- Whether this transaction commits a change that lists this document.
CREATE OR REPLACE FUNCTION is_listed(kind text, id uuid) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  SELECT EXISTS (SELECT FROM blueprint t JOIN head h ON h.epoch = t.epoch
                 LEFT JOIN review_document d ON d.review_id = t.review_id
                   AND d.kind = is_listed.kind AND d.id = is_listed.id
                 WHERE t.xid = pg_current_xact_id() AND (t.kind = 'genesis' OR d.id IS NOT NULL))
$$;

-- Roles whose data in a deployment the review changes.
CREATE OR REPLACE FUNCTION changed_role_data(review bigint)
RETURNS TABLE (deployment_id uuid, role text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off
SET jit = off AS $$
  SELECT d.id, o.key FROM review_document d
  CROSS JOIN LATERAL (SELECT
    (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.old_hash) AS was,
    (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o
      WHERE o.hash = d.new_hash) AS is_now) doc
  CROSS JOIN LATERAL jsonb_each(doc.was -> 'roles') o
  WHERE d.review_id = review AND d.kind = 'deployment' AND doc.is_now -> 'roles' ? o.key
    AND doc.is_now -> 'roles' -> o.key -> 'data' IS DISTINCT FROM o.value -> 'data'
$$;

-- Returns nothing outside a commit, where guard_intent rejects the change. No search path of its
-- own, because every statement on steps calls it.
CREATE OR REPLACE FUNCTION current_commit(OUT number bigint, OUT review bigint,
  OUT genesis boolean) LANGUAGE plpgsql STABLE AS $$
BEGIN
  SELECT t.number, t.review_id, t.kind OPERATOR(pg_catalog.=) 'genesis' INTO number, review,
    genesis
  FROM public.blueprint t JOIN public.head h ON h.epoch OPERATOR(pg_catalog.=) t.epoch
  WHERE t.xid OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id_if_assigned()
    AND t.kind OPERATOR(pg_catalog.<>) 'switch';
END $$;

CREATE OR REPLACE FUNCTION refuse_unlisted(change text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT owns_tables() THEN
    RAISE EXCEPTION 'The review does not list this change: %', change
      USING ERRCODE = 'GY053',
        HINT = 'A commit may only write rows of documents that its review lists.';
  END IF;
END $$;

-- The key of a noderole in its node's document.
CREATE OR REPLACE FUNCTION noderole_key(role text, instance int) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT role OPERATOR(pg_catalog.||) CASE WHEN instance OPERATOR(pg_catalog.>) 0
    THEN '/' OPERATOR(pg_catalog.||) instance::pg_catalog.text ELSE '' END
$$;

-- Whether a noderole may have changed its node.
CREATE OR REPLACE FUNCTION may_have_run(noderole uuid) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off AS $$
  SELECT EXISTS (SELECT FROM step s WHERE s.noderole_id = may_have_run.noderole AND s.action = 'run'
    AND (s.applied_generation > 0 OR EXISTS (
      SELECT FROM run r WHERE r.step_id = s.id AND r.started_at IS NOT NULL
        AND r.outcome IS DISTINCT FROM 'unstarted')))
$$;

-- The hard parents that a removed noderole had in its last document.
CREATE OR REPLACE FUNCTION last_parents(noderole uuid) RETURNS TABLE (parent uuid) LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off AS $$
  SELECT (e.value ->> 'parent')::uuid FROM noderole r
  JOIN step s ON s.noderole_id = r.id AND s.action = 'run' AND s.state = 'gone'
  JOIN blueprint t ON t.number = s.generation
  JOIN review_document d ON d.review_id = t.review_id AND d.kind = 'node'
    AND d.id = r.node_id
  JOIN object o ON o.hash = d.old_hash
  CROSS JOIN LATERAL jsonb_array_elements(convert_from(o.body, 'UTF8')::jsonb
    #> ARRAY['noderoles', noderole_key(r.role, r.instance), 'parents']) e
  WHERE r.id = last_parents.noderole AND e.value ->> 'kind' = 'hard'
$$;

-- Unfinished removal steps of noderoles that depended on these, over any number of removed ones.
CREATE OR REPLACE FUNCTION unfinished_removals_below(noderoles uuid[])
RETURNS TABLE (parent uuid, step uuid, rank int) LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp SET jit = off AS $$
  WITH RECURSIVE above AS (
    SELECT s.id, s.rank, s.noderole_id FROM step s
    WHERE s.action = 'remove' AND s.state IN ('blocked', 'todo', 'transition', 'error')
      AND s.noderole_id <> ALL (noderoles)
    UNION
    SELECT a.id, a.rank, p.parent FROM above a CROSS JOIN LATERAL last_parents(a.noderole_id) p)
  SELECT a.noderole_id, a.id, a.rank FROM above a WHERE a.noderole_id = ANY (noderoles)
$$;

CREATE OR REPLACE FUNCTION guard_listed_noderole() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  committed record := current_commit();
  named text;
BEGIN
  IF committed.number IS NULL OR committed.genesis THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'INSERT' THEN
    SELECT n.id INTO named FROM is_now n WHERE NOT EXISTS (
      SELECT FROM review_document d WHERE d.review_id = committed.review AND d.kind = 'node'
        AND d.id = n.node_id) LIMIT 1;
  ELSE
    SELECT o.id INTO named FROM was o LEFT JOIN is_now n ON n.id = o.id
    WHERE n.id IS NULL OR (n.node_id, n.role, n.instance) <> (o.node_id, o.role, o.instance)
       OR ((n.deployment_id, n.disposition, n.role_hash, n.data, n.doc) IS DISTINCT FROM
           (o.deployment_id, o.disposition, o.role_hash, o.data, o.doc) AND (
             -- Documents do not contain removed noderoles.
             o.disposition = 'gone' AND n.disposition = 'gone' OR NOT EXISTS (
             SELECT FROM review_document d WHERE d.review_id = committed.review
               AND d.kind = 'node' AND d.id = n.node_id))) LIMIT 1;
  END IF;
  IF named IS NULL THEN
    -- A row may not name a deployment or role that differs from the documents.
    WITH doc AS MATERIALIZED (
      SELECT d.id, convert_from(o.body, 'UTF8')::jsonb -> 'noderoles' AS noderoles
      FROM review_document d JOIN object o ON o.hash = d.new_hash
      WHERE d.review_id = committed.review AND d.kind = 'node'
        AND d.id IN (SELECT x.node_id FROM is_now x))
    SELECT n.id INTO named FROM is_now n JOIN doc d ON d.id = n.node_id
    WHERE n.disposition = 'in_service'
      AND NOT coalesce(jsonb_build_object('deployment', n.deployment_id, 'role',
      encode(n.role_hash, 'hex'))
            <@ (d.noderoles -> noderole_key(n.role, n.instance)), false)
    LIMIT 1;
  END IF;
  IF named IS NOT NULL THEN
    PERFORM refuse_unlisted('noderole ' || named);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_listed AFTER INSERT ON noderole REFERENCING NEW TABLE AS is_now
  FOR EACH STATEMENT EXECUTE FUNCTION guard_listed_noderole();
CREATE TRIGGER guard_listed_change AFTER UPDATE ON noderole
  REFERENCING OLD TABLE AS was NEW TABLE AS is_now
  FOR EACH STATEMENT EXECUTE FUNCTION guard_listed_noderole();

-- The columns that only a commit writes. grants.sql lets the server write these columns.
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE
  OR UPDATE OF id, node_id, role, instance, deployment_id, disposition, role_hash, data, doc ON noderole
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE
  OR UPDATE OF id, noderole_id, node_id, action, concurrency_group_id, rank, priority, jig, exclusive, destructive, immediate, needs, run_location,
               generation, content_hash, disruption_budget_ids, blocks_node, retries, backoff_s, timeout_s, check_s,
               join_kind, join_n, join_after, skipped ON step
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();

-- The columns of a step that come from its role.
CREATE OR REPLACE FUNCTION role_columns(role_hash bytea)
RETURNS TABLE (jig text, noop boolean, destructive boolean, milestone boolean, exclusive boolean,
  needs text, run_location text, blocks_node boolean,
               retries bigint, backoff_s bigint, timeout_s bigint, check_s int, join_kind text, join_n bigint,
                 join_after text, priority int,
               concurrency_group text, max_running bigint, mode text, keeps boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off
SET jit = off AS $$
  SELECT r.b ->> 'jig', r.b ->> 'jig_class' = 'noop',
    coalesce((r.b #>> '{flags,destructive}')::boolean, false),
    coalesce((r.b #>> '{flags,milestone}')::boolean, false),
      coalesce((r.b #>> '{run,exclusive}')::boolean, true),
    coalesce(r.b #>> '{run,needs}', 'alive'), coalesce(r.b #>> '{run,location}', 'node'),
      r.b #>> '{run,on_error}' IS NOT DISTINCT FROM 'node',
    least(coalesce((r.b #>> '{run,retries}')::bigint, 0), 2147483647),
      least(coalesce((r.b #>> '{run,backoff}')::bigint, 5), 2147483647),
    least(greatest(coalesce((r.b #>> '{run,timeout}')::bigint, 3600), 1), 2147483647),
    (r.b #>> '{run,check,interval}')::int,
    CASE WHEN jsonb_typeof(r.b #> '{run,join,need}') = 'object' THEN 'at_least'
      ELSE coalesce(r.b #>> '{run,join,need}', 'all') END,
    CASE WHEN jsonb_typeof(r.b #> '{run,join,need}') = 'object'
      THEN greatest((r.b #>> '{run,join,need,at_least}')::bigint, 1) END,
    coalesce(r.b #>> '{run,join,after}', 'success'),
    coalesce((r.b #>> '{run,priority}')::int, 0),
    coalesce(r.b #>> '{run,concurrency_group,name}', r.b ->> 'name'), (r.b #>> '{run,concurrency_group,max_running}')::bigint,
    coalesce(r.b #>> '{run,concurrency_group,mode}', 'rolling'),
      r.b #>> '{run,on_change}' IS NOT DISTINCT FROM 'keep'
  FROM (SELECT convert_from(o.body, 'UTF8')::jsonb AS b FROM object o WHERE o.hash = role_hash
    AND o.kind = 'role') r
$$;

-- The first of these steps whose columns differ from its role. NULL if all match.
CREATE OR REPLACE FUNCTION step_unlike_role(steps uuid[]) RETURNS uuid LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off AS $$
  WITH written AS MATERIALIZED (
    SELECT s.*, r.role_hash, d.phantom FROM step s JOIN noderole r ON r.id = s.noderole_id
      JOIN node d ON d.id = s.node_id
    WHERE s.id = ANY(steps)),
  roles AS MATERIALIZED (
    SELECT x.role_hash, c.* FROM (SELECT DISTINCT role_hash FROM written) x
      CROSS JOIN LATERAL role_columns(x.role_hash) c)
  SELECT s.id FROM written s JOIN roles o ON o.role_hash = s.role_hash
  WHERE (s.jig, s.destructive, s.immediate, s.exclusive, s.needs, s.run_location, s.blocks_node, s.retries,
    s.backoff_s, s.timeout_s, s.check_s,
         s.join_kind, s.join_n, s.join_after, s.priority) IS DISTINCT FROM
        -- The join and these flags are those of `run`. A removal waits for all its children.
        (o.jig, o.destructive AND s.action = 'run', o.milestone AND o.noop AND s.action = 'run',
          o.exclusive AND NOT s.phantom, o.needs, o.run_location, o.blocks_node, o.retries,
         o.backoff_s, o.timeout_s, CASE s.action WHEN 'run' THEN o.check_s END, CASE s.action WHEN 'run' THEN o.join_kind ELSE 'all' END,
         CASE s.action WHEN 'run' THEN o.join_n END,
         CASE s.action WHEN 'run' THEN o.join_after ELSE 'success' END, o.priority) LIMIT 1
$$;

CREATE OR REPLACE FUNCTION guard_listed_step() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  committed record := current_commit();
  named text;
BEGIN
  IF committed.number IS NULL THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'INSERT' THEN
    SELECT n.id INTO named FROM is_now n
    WHERE n.state NOT IN ('blocked', 'todo') OR n.applied_generation <> 0 OR n.failures <> 0
      OR n.generation <> committed.number
       OR n.cause IS NOT NULL OR n.error IS NOT NULL OR n.output IS NOT NULL OR n.output_run IS NOT NULL
          OR n.results IS NOT NULL
       OR NOT committed.genesis AND NOT EXISTS (
         SELECT FROM review_document d WHERE d.review_id = committed.review
           AND d.kind = 'node' AND d.id = n.node_id) LIMIT 1;
  ELSE
    SELECT o.id INTO named FROM was o LEFT JOIN is_now n ON n.id = o.id
    WHERE n.id IS NULL OR (n.noderole_id, n.node_id, n.action) <> (o.noderole_id, o.node_id,
      o.action)
      OR n.generation <> o.generation AND n.generation <> committed.number
      -- A node's record updates all of its steps, removed ones included.
      OR o.state = 'gone' AND n.state = 'gone'
        AND to_jsonb(n) - ARRAY['node_fits', 'node_up']
          IS DISTINCT FROM to_jsonb(o) - ARRAY['node_fits', 'node_up']
      -- A removal step changes only when it is added, and goes only with the binding of its
      -- noderole or with its node.
      OR n.action = 'remove' AND o.state <> 'gone' AND CASE n.state WHEN 'gone' THEN EXISTS (
          SELECT FROM noderole r JOIN review_document d ON d.review_id = committed.review
            AND d.kind = 'node' AND d.id = r.node_id JOIN object b ON b.hash = d.new_hash
          WHERE r.id = n.noderole_id AND (convert_from(b.body, 'UTF8')::jsonb -> 'noderoles'
            ? noderole_key(r.role, r.instance)) IS NOT TRUE)
        ELSE (n.generation, n.content_hash, n.rank) <> (o.generation, o.content_hash, o.rank) END
      OR n.disruption_budget_ids <> o.disruption_budget_ids AND n.disruption_budget_ids <> '{}'
         OR n.skipped IS DISTINCT FROM o.skipped AND n.skipped IS NOT NULL
      OR ((n.concurrency_group_id, n.rank, n.priority, n.jig, n.exclusive, n.destructive, n.immediate, n.needs,
        n.run_location, n.disruption_budget_ids, n.blocks_node,
           n.retries, n.backoff_s, n.timeout_s, n.check_s, n.join_kind, n.join_n, n.join_after, n.skipped,
             n.state = 'gone') IS DISTINCT FROM
          (o.concurrency_group_id, o.rank, o.priority, o.jig, o.exclusive, o.destructive, o.immediate, o.needs,
            o.run_location, o.disruption_budget_ids, o.blocks_node,
           o.retries, o.backoff_s, o.timeout_s, o.check_s, o.join_kind, o.join_n, o.join_after, o.skipped,
             o.state = 'gone')
          OR (n.generation, n.content_hash) <> (o.generation, o.content_hash) AND NOT EXISTS (
            SELECT FROM noderole r JOIN changed_role_data(committed.review) t
              ON t.deployment_id = r.deployment_id AND t.role = r.role
            WHERE r.id = n.noderole_id AND n.action = 'run'))
        AND NOT committed.genesis AND NOT EXISTS (
          SELECT FROM review_document d WHERE d.review_id = committed.review
            AND d.kind = 'node' AND d.id = n.node_id) LIMIT 1;
  END IF;
  IF named IS NOT NULL THEN
    PERFORM refuse_unlisted('step ' || named);
  END IF;
  -- The columns of a step match its role after every statement. Otherwise a step could become
  -- ACTIVE in between.
  IF TG_OP = 'INSERT' THEN
    SELECT step_unlike_role(array_agg(n.id)) INTO named FROM is_now n;
  ELSE
    SELECT step_unlike_role(array_agg(n.id)) INTO named FROM is_now n JOIN was o ON o.id = n.id
    WHERE n.state <> 'gone'
      AND (n.jig, n.exclusive, n.destructive, n.immediate, n.needs, n.run_location, n.blocks_node,
        n.retries, n.backoff_s, n.timeout_s, n.check_s,
           n.join_kind, n.join_n, n.join_after, n.priority) IS DISTINCT FROM
          (o.jig, o.exclusive, o.destructive, o.immediate, o.needs, o.run_location, o.blocks_node,
            o.retries, o.backoff_s, o.timeout_s, o.check_s,
           o.join_kind, o.join_n, o.join_after, o.priority);
    IF named IS NULL THEN
      -- An immediate step becomes ACTIVE only with all the parents that its document names.
      SELECT n.id INTO named FROM is_now n JOIN was o ON o.id = n.id
        JOIN noderole r ON r.id = n.noderole_id
      JOIN review_document d ON d.review_id = committed.review AND d.kind = 'node'
        AND d.id = n.node_id
      JOIN object b ON b.hash = d.new_hash
      CROSS JOIN LATERAL jsonb_array_elements(
        convert_from(b.body, 'UTF8')::jsonb #> ARRAY['noderoles', noderole_key(r.role, r.instance),
          'parents']) w
      WHERE n.immediate AND n.state = 'active' AND o.state <> 'active' AND NOT EXISTS (
        SELECT FROM edge e JOIN step p ON p.id = e.parent
        WHERE e.child = n.id AND p.noderole_id = (w ->> 'parent')::uuid AND e.kind = w ->> 'kind')
          LIMIT 1;
    END IF;
  END IF;
  IF named IS NOT NULL AND NOT owns_tables() THEN
    RAISE EXCEPTION 'Step % differs from its document', named
      USING ERRCODE = 'GY054', HINT = 'The rows of a commit must match its documents.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_listed AFTER INSERT ON step REFERENCING NEW TABLE AS is_now
  FOR EACH STATEMENT EXECUTE FUNCTION guard_listed_step();
CREATE TRIGGER guard_listed_change AFTER UPDATE ON step
  REFERENCING OLD TABLE AS was NEW TABLE AS is_now
  FOR EACH STATEMENT EXECUTE FUNCTION guard_listed_step();

CREATE OR REPLACE FUNCTION guard_listed_edge() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  committed record := current_commit();
  named text;
BEGIN
  IF committed.number IS NULL OR committed.genesis THEN
    RETURN NULL;
  END IF;
  SELECT e.child INTO named FROM (SELECT DISTINCT child, parent FROM touched) e
    JOIN step s ON s.id = e.child
  -- The edges of a removal step are added with it. They go when one of their steps goes, also if
  -- the other step is on a node that is not listed.
  WHERE CASE WHEN s.action <> 'remove' THEN NOT EXISTS (
        SELECT FROM review_document d WHERE d.review_id = committed.review
          AND d.kind = 'node' AND d.id = s.node_id)
      WHEN TG_OP = 'INSERT' THEN s.generation <> committed.number
      ELSE s.state <> 'gone'
        AND NOT EXISTS (SELECT FROM step p WHERE p.id = e.parent AND p.state = 'gone') END LIMIT 1;
  IF named IS NOT NULL THEN
    PERFORM refuse_unlisted('an edge of step ' || named);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_listed AFTER INSERT ON edge REFERENCING NEW TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION guard_listed_edge();
CREATE TRIGGER guard_listed_deleted AFTER DELETE ON edge REFERENCING OLD TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION guard_listed_edge();

-- Statements that no commit of Gantry executes.
CREATE OR REPLACE FUNCTION guard_never() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM refuse_unlisted(lower(TG_OP) || ' of ' || TG_TABLE_NAME);
  RETURN NULL;
END $$;
CREATE TRIGGER guard_never AFTER UPDATE ON edge FOR EACH STATEMENT EXECUTE FUNCTION guard_never();
CREATE TRIGGER guard_never AFTER DELETE ON noderole FOR EACH STATEMENT
  EXECUTE FUNCTION guard_never();
CREATE TRIGGER guard_never AFTER DELETE ON step FOR EACH STATEMENT EXECUTE FUNCTION guard_never();
CREATE TRIGGER guard_never AFTER DELETE ON deployment FOR EACH STATEMENT
  EXECUTE FUNCTION guard_never();
CREATE TRIGGER guard_never AFTER DELETE ON concurrency_group FOR EACH STATEMENT EXECUTE FUNCTION guard_never();
-- Documents do not contain disruption budgets yet.
CREATE TRIGGER guard_never AFTER INSERT OR UPDATE OR DELETE ON disruption_budget FOR EACH STATEMENT
  EXECUTE FUNCTION guard_never();
CREATE TRIGGER guard_never AFTER DELETE ON jig FOR EACH STATEMENT EXECUTE FUNCTION guard_never();
CREATE TRIGGER guard_never_class AFTER UPDATE ON jig FOR EACH ROW
  WHEN (NEW.name <> OLD.name OR NEW.class <> OLD.class) EXECUTE FUNCTION guard_never();

-- Columns of deployments and nodes that come from documents change only with these. The name sorts
-- after guard_removal and guard_move, so that their messages come first.
CREATE OR REPLACE FUNCTION guard_listed_document() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF committing() AND NOT is_listed(TG_TABLE_NAME, NEW.id) THEN
    PERFORM refuse_unlisted(TG_TABLE_NAME || ' ' || NEW.id);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_written AFTER UPDATE OF parent, name, system, phantom, removed_in ON deployment
  FOR EACH ROW
  WHEN ((NEW.parent, NEW.name, NEW.system, NEW.phantom, NEW.removed_in) IS DISTINCT FROM
        (OLD.parent, OLD.name, OLD.system, OLD.phantom, OLD.removed_in))
          EXECUTE FUNCTION guard_listed_document();
CREATE TRIGGER guard_written AFTER UPDATE OF fqdn, deployment_id, phantom, removed_in ON node
  FOR EACH ROW
  WHEN ((NEW.fqdn, NEW.deployment_id, NEW.phantom, NEW.removed_in) IS DISTINCT FROM
        (OLD.fqdn, OLD.deployment_id, OLD.phantom, OLD.removed_in))
          EXECUTE FUNCTION guard_listed_document();
CREATE TRIGGER guard_written_insert AFTER INSERT ON node FOR EACH ROW
  EXECUTE FUNCTION guard_listed_document();

-- A blueprint lists its deployments with its own number only.
CREATE OR REPLACE FUNCTION guard_line() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NEW.blueprint_number IS DISTINCT FROM (current_commit()).number THEN
    PERFORM refuse_unlisted('the blueprint history of deployment ' || NEW.deployment_id);
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_line BEFORE INSERT ON blueprint_deployment FOR EACH ROW
  EXECUTE FUNCTION guard_line();

CREATE OR REPLACE FUNCTION guard_head_no() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NEW.head_no IS DISTINCT FROM (current_commit()).number OR NEW.removed_in <> NEW.head_no THEN
    PERFORM refuse_unlisted('the head of deployment ' || NEW.name);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_written_head AFTER UPDATE OF head_no, removed_in ON deployment FOR EACH ROW
  WHEN ((NEW.head_no, NEW.removed_in) IS DISTINCT FROM (OLD.head_no, OLD.removed_in))
    EXECUTE FUNCTION guard_head_no();

-- The limit of a concurrency group comes from a role of its deployment, and the document of
-- *system* turns jigs off. Both are checked at the end of the transaction, or earlier on request
-- (SET CONSTRAINTS). Every statement compares noderoles with the documents, so they match at that
-- moment too.
CREATE OR REPLACE FUNCTION guard_concurrency_group_role() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  -- Fast path: usually the group's name is a role's name and there is no limit.
  IF NOT EXISTS (SELECT FROM noderole n CROSS JOIN LATERAL role_columns(n.role_hash) r
                 WHERE n.deployment_id = NEW.deployment_id AND n.role = NEW.name
                   AND n.disposition = 'in_service'
                   AND (r.concurrency_group, r.max_running, r.mode) IS NOT DISTINCT FROM (NEW.name,
                     NEW.max_running::bigint, NEW.mode))
     AND NOT EXISTS (SELECT FROM (SELECT DISTINCT n.role_hash FROM noderole n
                                  WHERE n.deployment_id = NEW.deployment_id
                                    AND n.disposition = 'in_service') x
                     CROSS JOIN LATERAL role_columns(x.role_hash) r
                     WHERE (r.concurrency_group, r.max_running, r.mode) IS NOT DISTINCT FROM (NEW.name,
                       NEW.max_running::bigint, NEW.mode))
     AND NOT owns_tables() THEN
    RAISE EXCEPTION 'No role of the deployment defines these limits for concurrency group %',
      NEW.name USING ERRCODE = 'GY054';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_concurrency_group_role AFTER INSERT OR UPDATE ON concurrency_group
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_concurrency_group_role();

CREATE OR REPLACE FUNCTION guard_jig_active() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF (SELECT j.active = jigs_off(d.doc) ? j.name FROM jig j, deployment d WHERE j.name = NEW.name
     AND d.system) AND NOT owns_tables() THEN
    RAISE EXCEPTION 'The state of jig % differs from the document of system', NEW.name
      USING ERRCODE = 'GY054';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_jig_active AFTER UPDATE ON jig DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.active <> OLD.active) EXECUTE FUNCTION guard_jig_active();

CREATE OR REPLACE FUNCTION note_projected(number bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  -- A commit that has been compared stays compared until it ends.
  DELETE FROM projected WHERE xid <> pg_current_xact_id();
  INSERT INTO projected (blueprint_number, xid)
  SELECT t.number, t.xid FROM blueprint t WHERE t.number = note_projected.number
    AND t.xid = pg_current_xact_id()
    AND NOT EXISTS (SELECT FROM projected p WHERE p.blueprint_number = t.number)
$$;

-- At the end of the commit, every row of a listed document matches that document.
CREATE OR REPLACE FUNCTION guard_rows() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE named text;
BEGIN
  IF NEW.kind = 'switch' THEN
    RETURN NULL;
  END IF;
  WITH listed AS MATERIALIZED (
    SELECT d.kind, d.id, d.old_hash, d.new_hash FROM review_document d
      WHERE d.review_id = NEW.review_id
    UNION ALL
    SELECT r.kind, r.id, NULL, r.hash FROM root_documents(NEW.root) r WHERE NEW.kind = 'genesis'),
  doc AS MATERIALIZED (
    SELECT l.kind, l.id,
      (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = l.old_hash) AS was,
      (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = l.new_hash) AS is_now
    FROM listed l),
  changed_data AS MATERIALIZED (SELECT t.deployment_id, t.role FROM changed_role_data(NEW.review_id) t),
  noderole_docs AS MATERIALIZED (
    SELECT doc.id AS node_id, k.key, split_part(k.key, '/', 1) AS role,
      CASE WHEN k.key LIKE '%/%' THEN split_part(k.key, '/', 2)::int ELSE 0 END AS instance,
      k.value AS nr, doc.was -> 'noderoles' -> k.key AS before,
        (doc.is_now ->> 'phantom')::boolean AS phantom
    FROM doc CROSS JOIN LATERAL jsonb_each(doc.is_now -> 'noderoles') k WHERE doc.kind = 'node'),
  roles AS MATERIALIZED (
    SELECT x.role, c.* FROM (SELECT DISTINCT nr ->> 'role' AS role FROM noderole_docs) x
    CROSS JOIN LATERAL role_columns(decode(x.role, 'hex')) c),
  step_of AS MATERIALIZED (
    SELECT c.*, r.id AS noderole_id, s.id AS step_id FROM noderole_docs c
    LEFT JOIN noderole r ON r.node_id = c.node_id AND r.role = c.role AND r.instance = c.instance
    LEFT JOIN step s ON s.noderole_id = r.id AND s.action = 'run'),
  expected AS (
    SELECT c.step_id AS child, p.id AS parent, e.value ->> 'kind' AS kind
    FROM step_of c CROSS JOIN LATERAL jsonb_array_elements(c.nr -> 'parents') e
    LEFT JOIN step p ON p.noderole_id = (e.value ->> 'parent')::uuid AND p.action = 'run'
      AND p.state <> 'gone'),
  actual AS (SELECT e.child, e.parent, e.kind FROM step_of c JOIN edge e ON e.child = c.step_id),
  -- Noderoles that nodes lose which stay.
  unbound AS MATERIALIZED (
    SELECT k.key, k.value AS nr, doc.id AS node_id, r.id AS noderole_id, r.role_hash, r.data,
      r.deployment_id, s.id AS step_id,
      coalesce(s.state <> 'gone' AND s.generation = NEW.number, false) AS has_removal,
      may_have_run(r.id) AND coalesce((SELECT convert_from(o.body, 'UTF8')::jsonb -> 'actions' ? 'remove'
        FROM object o WHERE o.hash = decode(k.value ->> 'role', 'hex')), false) AS needs_removal
    FROM doc CROSS JOIN LATERAL jsonb_each(doc.was -> 'noderoles') k
    JOIN noderole r ON r.node_id = doc.id AND noderole_key(r.role, r.instance) = k.key
    LEFT JOIN step s ON s.noderole_id = r.id AND s.action = 'remove'
    WHERE doc.kind = 'node' AND doc.is_now IS NOT NULL
      AND NOT (doc.is_now -> 'noderoles' ? k.key))
  SELECT string_agg(x.row_name, ', ') INTO named FROM (
    SELECT * FROM (
      SELECT 'deployment ' || doc.id AS row_name FROM doc LEFT JOIN deployment d ON d.id = doc.id
      WHERE doc.kind = 'deployment' AND doc.is_now IS NOT NULL AND
        (d.name, d.parent, d.phantom, d.system, d.removed_in)
          IS DISTINCT FROM (doc.is_now ->> 'name', (doc.is_now ->> 'parent')::uuid,
          (doc.is_now ->> 'phantom')::uuid, doc.is_now ->> 'parent' IS NULL, NULL::bigint)
      LIMIT 5) a
    UNION ALL SELECT * FROM (
      SELECT doc.kind || ' ' || doc.id FROM doc LEFT JOIN deployment d ON doc.kind = 'deployment'
        AND d.id = doc.id
      LEFT JOIN node n ON doc.kind = 'node' AND n.id = doc.id
      WHERE doc.is_now IS NULL AND coalesce(d.removed_in, n.removed_in) IS DISTINCT FROM NEW.number
      LIMIT 5) r
    UNION ALL SELECT * FROM (
      SELECT 'node ' || doc.id FROM doc LEFT JOIN node n ON n.id = doc.id
      WHERE doc.kind = 'node' AND doc.is_now IS NOT NULL
        AND (n.fqdn, n.deployment_id, n.phantom, n.removed_in) IS DISTINCT FROM
        (doc.is_now ->> 'fqdn', (doc.is_now ->> 'deployment')::uuid,
          (doc.is_now ->> 'phantom')::boolean, NULL::bigint)
      LIMIT 5) b
    UNION ALL SELECT * FROM (
      SELECT 'noderole ' || c.key || ' on ' || c.node_id FROM step_of c
        LEFT JOIN noderole r ON r.id = c.noderole_id
      WHERE (r.disposition, r.deployment_id, encode(r.role_hash, 'hex'), r.data, r.doc)
        IS DISTINCT FROM
        ('in_service', (c.nr ->> 'deployment')::uuid, c.nr ->> 'role', c.nr -> 'data',
         jsonb_build_object('rank', c.nr -> 'rank', 'reruns', c.nr -> 'reruns'))
      LIMIT 5) c
    UNION ALL SELECT * FROM (
      SELECT 'step of ' || c.key || ' on ' || c.node_id
        FROM step_of c JOIN roles o ON o.role = c.nr ->> 'role'
      LEFT JOIN step s ON s.id = c.step_id LEFT JOIN concurrency_group l ON l.id = s.concurrency_group_id
      WHERE s.id IS NULL OR s.state = 'gone' OR s.skipped IS NOT NULL OR s.disruption_budget_ids <> '{}'
        OR s.node_id <> c.node_id
        OR (s.rank, s.jig, s.destructive, s.immediate, s.exclusive, s.needs, s.run_location, s.blocks_node)
           IS DISTINCT FROM ((c.nr ->> 'rank')::int, o.jig, o.destructive, o.milestone
             AND o.noop, o.exclusive AND NOT c.phantom,
                             o.needs, o.run_location, o.blocks_node)
        OR (s.retries, s.backoff_s, s.timeout_s, s.check_s, s.join_kind, s.join_n, s.join_after, s.priority)
           IS DISTINCT FROM (o.retries, o.backoff_s, o.timeout_s, o.check_s, o.join_kind, o.join_n,
             o.join_after, o.priority)
        OR (l.deployment_id, l.name, l.max_running::bigint, l.mode)
           IS DISTINCT FROM ((c.nr ->> 'deployment')::uuid, o.concurrency_group, o.max_running, o.mode)
        -- Exactly the new and changed steps get the generation of this blueprint.
        OR (s.generation = NEW.number) IS DISTINCT FROM (c.before IS NULL
             OR c.before -> 'reruns' IS DISTINCT FROM c.nr -> 'reruns'
             OR NOT o.keeps AND (c.before -> 'role' IS DISTINCT FROM c.nr -> 'role'
                OR c.before -> 'data' IS DISTINCT FROM c.nr -> 'data'
               OR CASE WHEN c.before ->> 'deployment' = c.nr ->> 'deployment' THEN EXISTS (
                    SELECT FROM changed_data t WHERE t.deployment_id = (c.nr ->> 'deployment')::uuid
                      AND t.role = c.role)
                  ELSE coalesce((
                      SELECT coalesce(d.was, convert_from(o.body, 'UTF8')::jsonb) #> ARRAY['roles',
                        c.role, 'data'] FROM deployment x
                      LEFT JOIN doc d ON d.kind = 'deployment' AND d.id = x.id
                        LEFT JOIN object o ON o.hash = x.doc
                      WHERE x.id = (c.before ->> 'deployment')::uuid), '{}')
                        IS DISTINCT FROM coalesce((
                      SELECT convert_from(o.body, 'UTF8')::jsonb #> ARRAY['roles', c.role, 'data']
                        FROM deployment x
                      JOIN object o ON o.hash = x.doc WHERE x.id = (c.nr ->> 'deployment')::uuid),
                        '{}') END))
        OR EXISTS (SELECT FROM step x WHERE x.noderole_id = c.noderole_id AND x.id <> s.id
          AND (x.action <> 'remove' OR x.state <> 'gone'))
      LIMIT 5) d
    UNION ALL SELECT * FROM (
      SELECT 'role of ' || c.key || ' on ' || c.node_id FROM step_of c
      WHERE NOT EXISTS (SELECT FROM roles o WHERE o.role = c.nr ->> 'role') LIMIT 5) e
    UNION ALL SELECT * FROM (
      SELECT 'parents of step ' || coalesce(f.child::text, '?')
      FROM ((TABLE expected EXCEPT TABLE actual) UNION ALL (TABLE actual EXCEPT TABLE expected)) f
        LIMIT 5) f
    UNION ALL SELECT * FROM (
      -- Steps of removed noderoles are gone and have no edges, except removal steps on nodes that
      -- stay. Removal steps of bound noderoles are gone and have no edges.
      SELECT 'step ' || s.id FROM doc JOIN noderole r ON r.node_id = doc.id
        JOIN step s ON s.noderole_id = r.id
      WHERE doc.kind = 'node'
        AND CASE WHEN s.action = 'run' OR doc.is_now IS NULL
          THEN (doc.is_now -> 'noderoles' ? noderole_key(r.role, r.instance)) IS NOT TRUE
          ELSE doc.is_now -> 'noderoles' ? noderole_key(r.role, r.instance) END
        AND (s.state <> 'gone' OR EXISTS (SELECT FROM edge e WHERE e.child = s.id)
          OR EXISTS (SELECT FROM edge e WHERE e.parent = s.id))
      LIMIT 5) g
    UNION ALL SELECT * FROM (
      SELECT 'noderole ' || r.id FROM doc JOIN noderole r ON r.node_id = doc.id
      WHERE doc.kind = 'node' AND r.disposition = 'in_service'
        AND (doc.is_now -> 'noderoles' ? noderole_key(r.role, r.instance)) IS NOT TRUE
      LIMIT 5) l
    UNION ALL SELECT * FROM (
      -- Removal steps are exactly those that the listed documents imply, with the old content.
      SELECT 'removal of ' || u.key || ' on ' || u.node_id FROM unbound u
      WHERE u.has_removal <> u.needs_removal OR u.needs_removal AND
        (u.deployment_id, encode(u.role_hash, 'hex'), u.data) IS DISTINCT FROM
        ((u.nr ->> 'deployment')::uuid, u.nr ->> 'role', u.nr -> 'data')
      UNION ALL
      SELECT 'removal step ' || s.id FROM doc JOIN step s ON s.node_id = doc.id
      WHERE doc.kind = 'node' AND s.action = 'remove' AND s.state <> 'gone' AND s.generation = NEW.number
        AND NOT EXISTS (SELECT FROM unbound u WHERE u.step_id = s.id)
      UNION ALL
      -- The removal of a child comes first.
      SELECT 'order of removal step ' || p.step_id FROM unbound c
        CROSS JOIN LATERAL jsonb_array_elements(c.nr -> 'parents') e
        JOIN unbound p ON p.noderole_id = (e.value ->> 'parent')::uuid
      WHERE c.has_removal AND p.has_removal AND e.value ->> 'kind' = 'hard'
        AND NOT EXISTS (SELECT FROM edge x WHERE x.child = p.step_id AND x.parent = c.step_id)
      UNION ALL
      SELECT 'an edge of removal step ' || u.step_id FROM unbound u
        JOIN edge x ON x.child = u.step_id OR x.parent = u.step_id
        JOIN step o ON (o.id = x.child OR o.id = x.parent) AND o.action <> 'remove'
      LIMIT 5) m
    UNION ALL SELECT * FROM (
      -- Nodes whose own documents stay unchanged.
      SELECT 'step ' || s.id FROM changed_data t JOIN noderole r ON r.deployment_id = t.deployment_id
        AND r.role = t.role
        AND r.disposition = 'in_service'
      JOIN step s ON s.noderole_id = r.id AND s.action = 'run' CROSS JOIN LATERAL (
        SELECT convert_from(o.body, 'UTF8')::jsonb #>> '{run,on_change}' = 'keep' AS keeps
          FROM object o WHERE o.hash = r.role_hash) o
      WHERE (s.generation = NEW.number) = coalesce(o.keeps, false)
        AND NOT EXISTS (SELECT FROM listed l WHERE l.kind = 'node' AND l.id = r.node_id)
      LIMIT 5) h
    UNION ALL SELECT * FROM (
      SELECT 'head_no of ' || d.name FROM deployment d
      WHERE d.head_no = NEW.number AND NEW.kind = 'change' AND d.id NOT IN (SELECT w.deployment_id
        FROM written_by(NEW.review_id) w)
      LIMIT 5) i
    UNION ALL SELECT * FROM (
      SELECT 'the blueprint history of deployment ' || coalesce(t.deployment_id, d.id)
        FROM (SELECT * FROM blueprint_deployment t WHERE t.blueprint_number = NEW.number) t
      FULL JOIN (SELECT * FROM deployment d WHERE d.head_no = NEW.number) d
        ON d.id = t.deployment_id
      WHERE d.id IS NULL OR t.deployment_id IS NULL LIMIT 5) k
    UNION ALL SELECT * FROM (
      SELECT 'noderoles' WHERE NEW.kind = 'genesis'
        AND (SELECT count(*) FROM noderole) <> (SELECT count(*) FROM noderole_docs)) j) x;
  IF named IS NOT NULL AND NOT owns_tables() THEN
    RAISE EXCEPTION 'Blueprint % leaves rows that differ from its documents: %', NEW.number, named
      USING ERRCODE = 'GY054', HINT = 'The rows of a commit must match its documents.';
  END IF;
  PERFORM note_projected(NEW.number);
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_rows AFTER INSERT ON blueprint DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_rows();
