-- Functions, triggers and grants. Every migration run replaces them in one transaction, so a
-- database is never without them. The enum `Refusal` lists the error codes. The settings
-- gantry.server_role, gantry.worker_role and gantry.metrics_role name the roles.

-- Every search path ends with pg_temp. Otherwise a temporary table could shadow one of Gantry's.
--
-- Functions that read a review's documents or the blueprint history disable sequential scans. After
-- one review with thousands of documents, the planner expects the same of the next one. It then
-- reads whole tables for each row that a review of one document writes.

DO $$
DECLARE t record;
BEGIN
  FOR t IN SELECT tgname, tgrelid::regclass AS tbl FROM pg_trigger
           WHERE NOT tgisinternal AND tgname LIKE 'guard\_%' AND tgparentid = 0
             AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
  LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', t.tgname, t.tbl);
  END LOOP;
END $$;

-- Append-only -------------------------------------------------------------------------------------
-- Server and workers have no privilege to change these rows. The triggers protect against the
-- owner's mistakes: a manual repair has to disable the trigger first.

CREATE OR REPLACE FUNCTION guard_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'Rows of table % are append-only and can never be changed or deleted',
    TG_TABLE_NAME
    USING ERRCODE = 'GY001', HINT = 'Insert a row that supersedes it.';
END $$;

DO $$
DECLARE tbl text;
BEGIN
  FOREACH tbl IN ARRAY ARRAY['object', 'policy', 'barclamp', 'blueprint', 'review', 'review_base',
                             'review_author', 'review_document', 'blueprint_deployment', 'left_out', 'replan', 'verdict',
                             'audit', 'seal'] LOOP
    EXECUTE format('CREATE TRIGGER guard_append_only BEFORE UPDATE OR DELETE ON %I
                    FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only()', tbl);
    EXECUTE format('CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON %I
                    FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only()', tbl);
  END LOOP;
END $$;
-- Old events are deleted (forget_events), but never changed.
CREATE TRIGGER guard_append_only BEFORE UPDATE ON event FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only();
-- A thread can be resolved and reopened. Its text never changes.
CREATE TRIGGER guard_append_only BEFORE DELETE
  OR UPDATE OF id, review_id, thread_id, anchor, person_id, body, at ON comment
  FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON comment FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only();

-- Target history ----------------------------------------------------------------------------------

-- Whether this transaction has inserted the blueprint of a change. The epoch matters because a
-- cluster restored from a dump restarts its transaction ids, so an old blueprint's id can recur.
CREATE OR REPLACE FUNCTION committing() RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  SELECT EXISTS (SELECT FROM blueprint t JOIN head h ON h.epoch = t.epoch
                 WHERE t.xid = pg_current_xact_id() AND t.kind <> 'switch'
                   -- The rows are compared at the end of the transaction, or earlier on request
                   -- (SET CONSTRAINTS). After that, nothing may change.
                   AND NOT EXISTS (SELECT FROM projected p WHERE p.blueprint_number = t.number AND p.xid = t.xid))
$$;

-- The documents of a root as rows. Rejects objects that are not roots.
CREATE OR REPLACE FUNCTION root_documents(root_hash bytea) RETURNS TABLE (kind text, id uuid, hash bytea)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE root jsonb;
BEGIN
  SELECT convert_from(o.body, 'UTF8')::jsonb INTO root FROM object o WHERE o.hash = root_hash AND o.kind = 'root';
  IF root IS NULL OR jsonb_typeof(root -> 'deployments') IS DISTINCT FROM 'object'
     OR jsonb_typeof(root -> 'nodes') IS DISTINCT FROM 'object' OR root - ARRAY['deployments', 'nodes', 'kind'] <> '{}' THEN
    RAISE EXCEPTION 'Object % is not a root', encode(root_hash, 'hex') USING ERRCODE = 'GY010';
  END IF;
  RETURN QUERY
    SELECT 'deployment'::text, d.key::uuid, decode(d.value, 'hex') FROM jsonb_each_text(root -> 'deployments') d
    UNION ALL
    SELECT 'node'::text, n.key::uuid, decode(n.value, 'hex') FROM jsonb_each_text(root -> 'nodes') n;
END $$;

-- Rejects a root that is not the canonical form of its rows. Otherwise two readers could see
-- different roots: if a key occurs twice, one reads the first value, another the last.
CREATE OR REPLACE FUNCTION check_canonical(root_hash bytea) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF (SELECT convert_from(o.body, 'UTF8') FROM object o WHERE o.hash = root_hash AND o.kind = 'root') IS DISTINCT FROM
     (SELECT '{"deployments":{' || coalesce(string_agg(r.entry, ',' ORDER BY r.id) FILTER (WHERE r.kind = 'deployment'), '')
        || '},"nodes":{' || coalesce(string_agg(r.entry, ',' ORDER BY r.id) FILTER (WHERE r.kind = 'node'), '') || '}}'
      FROM (SELECT kind, id, format('"%s":"%s"', id, encode(hash, 'hex')) AS entry FROM root_documents(root_hash)) r) THEN
    RAISE EXCEPTION 'Root % is not in canonical form', encode(root_hash, 'hex')
      USING ERRCODE = 'GY010';
  END IF;
END $$;

-- Whether a root equals another one with the review's documents replaced. It compares bytes only:
-- true is certain, false means unknown. Reading a root as rows takes 4 ms per 1,000 nodes, and all
-- other commits wait for it. This function takes about 3 ms at 10,000 nodes and again for each
-- document. So it handles only a few changed documents.
--
-- Every root in the blueprint history is canonical. check_canonical checks it, and a root accepted
-- here inherits the property from its parent. So each entry and the border occur once, and nothing
-- else is hidden.
CREATE OR REPLACE FUNCTION replaces_as_listed(parent_root bytea, new_root bytea, review bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  most CONSTANT int := 8;
  border CONSTANT bytea := convert_to(',"nodes":{', 'UTF8');
  written bytea;
  nodes int;
  place int;
  d record;
BEGIN
  IF (SELECT count(*) NOT BETWEEN 1 AND most OR bool_or(l.old_hash IS NULL OR l.new_hash IS NULL)
      FROM (SELECT old_hash, new_hash FROM review_document x WHERE x.review_id = review LIMIT most + 1) l) THEN
    RETURN false;
  END IF;
  -- The || detoasts the body once instead of once per use.
  SELECT o.body || ''::bytea INTO written FROM object o WHERE o.hash = parent_root AND o.kind = 'root';
  nodes := position(border IN written);
  IF coalesce(nodes, 0) = 0 THEN
    RETURN false;
  END IF;
  FOR d IN SELECT x.kind, convert_to(format('"%s":"%s"', x.id, encode(x.old_hash, 'hex')), 'UTF8') AS was,
                  convert_to(format('"%s":"%s"', x.id, encode(x.new_hash, 'hex')), 'UTF8') AS is_now
           FROM review_document x WHERE x.review_id = review LOOP
    -- A node and a deployment may have the same id, so each kind has its own search range.
    place := CASE d.kind WHEN 'node' THEN position(d.was IN substring(written FROM nodes))
                         ELSE position(d.was IN substring(written FROM 1 FOR nodes)) END;
    IF place = 0 THEN
      RETURN false;
    END IF;
    written := overlay(written PLACING d.is_now FROM CASE d.kind WHEN 'node' THEN nodes - 1 ELSE 0 END + place);
  END LOOP;
  RETURN coalesce((SELECT o.body = written FROM object o WHERE o.hash = new_root AND o.kind = 'root'), false);
END $$;

-- The deployments that a review writes. It applies the planner's rule to the documents themselves:
-- - deployments whose documents change
-- - deployments of nodes whose connection or hints change
-- - parents of deployments that are created or removed; both parents of those that move
-- - the deployment that a node enters, and the one that it leaves unless it moves to a descendant
-- - deployments in which a noderole is bound, unbound or changed
CREATE OR REPLACE FUNCTION written_by(review bigint) RETURNS TABLE (deployment_id uuid)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  WITH RECURSIVE doc AS MATERIALIZED (
    -- Lookups by key. As joins, they got the plan for the largest review ever made.
    SELECT d.kind, d.id, d.old_hash, d.new_hash,
           (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.old_hash) AS was,
           (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.new_hash) AS is_now
    FROM review_document d
    WHERE d.review_id = review),
  parent_of AS (
    -- The tree after the commit: the review's documents take precedence over the projected rows.
    SELECT id, (is_now ->> 'parent')::uuid AS parent FROM doc WHERE kind = 'deployment' AND new_hash IS NOT NULL
    UNION ALL
    SELECT d.id, d.parent FROM deployment d WHERE NOT EXISTS (SELECT FROM doc WHERE doc.kind = 'deployment' AND doc.id = d.id)),
  moved AS (
    SELECT (was ->> 'deployment')::uuid AS origin, (is_now ->> 'deployment')::uuid AS goal FROM doc
    WHERE kind = 'node' AND was ->> 'deployment' IS DISTINCT FROM is_now ->> 'deployment'),
  above AS (
    SELECT goal AS id, goal FROM moved WHERE goal IS NOT NULL
    UNION
    SELECT p.parent, a.goal FROM above a JOIN parent_of p ON p.id = a.id WHERE p.parent IS NOT NULL),
  noderole_change AS (
    SELECT (r.was ->> 'deployment')::uuid AS was_in, (r.is_now ->> 'deployment')::uuid AS is_in
    FROM doc CROSS JOIN LATERAL (
      SELECT o.value AS was, n.value AS is_now FROM jsonb_each(coalesce(doc.was -> 'noderoles', '{}')) o
      FULL JOIN jsonb_each(coalesce(doc.is_now -> 'noderoles', '{}')) n USING (key)
      WHERE o.value IS DISTINCT FROM n.value) r
    WHERE doc.kind = 'node')
  SELECT w.id FROM (
    SELECT id FROM doc WHERE kind = 'deployment'
    UNION SELECT (is_now ->> 'deployment')::uuid FROM doc
          WHERE kind = 'node' AND was IS NOT NULL AND is_now IS NOT NULL
            AND (was -> 'connection', was -> 'hints') IS DISTINCT FROM (is_now -> 'connection', is_now -> 'hints')
    UNION SELECT (side.doc ->> 'parent')::uuid FROM doc CROSS JOIN LATERAL (VALUES (was), (is_now)) side (doc)
          WHERE kind = 'deployment' AND was ->> 'parent' IS DISTINCT FROM is_now ->> 'parent'
    UNION SELECT goal FROM moved
    UNION SELECT origin FROM moved m WHERE NOT EXISTS (SELECT FROM above a WHERE a.id = m.origin AND a.goal = m.goal)
    UNION SELECT was_in FROM noderole_change
    UNION SELECT is_in FROM noderole_change) w
  WHERE w.id IS NOT NULL
$$;

-- The risks that follow from a review's documents, by the rules of the engine's
-- consequences::risks. Step flags and jigs are not in documents (see guard_risk, guard_halt). The
-- committer writes the rows, but reviewers see the documents. So even a commit that leaves the rows
-- unchanged has changed the desired state.
--
-- It never reports a risk that the engine does not. It may miss one: for a noderole now bound in
-- another deployment, it does not compare the data of the role. guard_rerun sees that its step
-- runs.
CREATE OR REPLACE FUNCTION risks_of_documents(review bigint) RETURNS TABLE (risk text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  WITH RECURSIVE doc AS MATERIALIZED (
    SELECT d.kind, d.id, d.old_hash, d.new_hash,
           (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.old_hash) AS was,
           (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.new_hash) AS is_now
    FROM review_document d
    WHERE d.review_id = review),
  parent_of AS (
    SELECT id, (is_now ->> 'parent')::uuid AS parent FROM doc WHERE kind = 'deployment' AND new_hash IS NOT NULL
    UNION ALL
    SELECT d.id, d.parent FROM deployment d WHERE NOT EXISTS (SELECT FROM doc WHERE doc.kind = 'deployment' AND doc.id = d.id)),
  -- A node without a document has no intent that could move.
  moved AS (
    SELECT (was ->> 'deployment')::uuid AS origin, (is_now ->> 'deployment')::uuid AS goal FROM doc
    WHERE kind = 'node' AND was ->> 'deployment' <> is_now ->> 'deployment'),
  above AS (
    SELECT goal AS id, goal FROM moved
    UNION
    SELECT p.parent, a.goal FROM above a JOIN parent_of p ON p.id = a.id WHERE p.parent IS NOT NULL),
  -- Roles whose data in a deployment changes.
  told AS MATERIALIZED (
    SELECT doc.id AS deployment_id, o.key AS role FROM doc CROSS JOIN LATERAL jsonb_each(doc.was -> 'roles') o
    WHERE doc.kind = 'deployment' AND doc.is_now -> 'roles' ? o.key
      AND doc.is_now -> 'roles' -> o.key -> 'data' IS DISTINCT FROM o.value -> 'data'),
  carried AS MATERIALIZED (
    SELECT r.key, r.was, r.is_now FROM doc CROSS JOIN LATERAL (
      SELECT key, o.value AS was, n.value AS is_now FROM jsonb_each(coalesce(doc.was -> 'noderoles', '{}')) o
      FULL JOIN jsonb_each(coalesce(doc.is_now -> 'noderoles', '{}')) n USING (key)) r
    WHERE doc.kind = 'node'),
  -- Templates of the roles that reference a secret.
  template AS MATERIALIZED (
    SELECT b.role, b.body::jsonb -> 'template' AS template FROM (
      SELECT x.role, (SELECT convert_from(o.body, 'UTF8') FROM object o WHERE o.hash = decode(x.role, 'hex')) AS body
      FROM (SELECT c.is_now ->> 'role' AS role FROM carried c UNION SELECT c.was ->> 'role' FROM carried c) x) b
    WHERE names_secret(b.body) AND jsonb_typeof(b.body::jsonb -> 'template') = 'object'),
  told_otherwise AS (
    SELECT c.is_now ->> 'role' AS role FROM carried c
    WHERE c.was IS NOT NULL AND c.is_now IS NOT NULL
      AND (c.was -> 'role' IS DISTINCT FROM c.is_now -> 'role' OR c.was -> 'data' IS DISTINCT FROM c.is_now -> 'data'
           OR c.was -> 'deployment' = c.is_now -> 'deployment' AND EXISTS (
             SELECT FROM told t WHERE t.deployment_id = (c.is_now ->> 'deployment')::uuid AND t.role = split_part(c.key, '/', 1)))
    UNION
    -- Nodes whose own documents stay unchanged.
    SELECT DISTINCT encode(r.role_hash, 'hex') FROM told t
    JOIN noderole r ON r.deployment_id = t.deployment_id AND r.role = t.role AND r.disposition = 'in_service'
    WHERE NOT EXISTS (SELECT FROM doc WHERE doc.kind = 'node' AND doc.id = r.node_id))
  SELECT 'removal' WHERE EXISTS (SELECT FROM doc WHERE old_hash IS NOT NULL AND new_hash IS NULL)
                      OR EXISTS (SELECT FROM carried WHERE is_now IS NULL)
  UNION ALL
  SELECT 'connection' WHERE EXISTS (
    SELECT FROM doc WHERE kind = 'node' AND was IS NOT NULL AND is_now IS NOT NULL
      AND was -> 'connection' IS DISTINCT FROM is_now -> 'connection')
  UNION ALL
  SELECT 'move' WHERE EXISTS (
      SELECT FROM moved m WHERE NOT EXISTS (SELECT FROM above a WHERE a.id = m.origin AND a.goal = m.goal))
    -- Permissions and signature rules follow from the ancestors of a deployment, so every move counts.
    OR EXISTS (
      SELECT FROM doc WHERE kind = 'deployment' AND was IS NOT NULL AND is_now IS NOT NULL
        AND was ->> 'parent' IS DISTINCT FROM is_now ->> 'parent')
  UNION ALL
  SELECT 'rerun' WHERE EXISTS (
      SELECT FROM carried c WHERE c.was IS NOT NULL AND c.is_now IS NOT NULL
        AND coalesce(c.was ->> 'reruns', '0') <> coalesce(c.is_now ->> 'reruns', '0'))
    -- A role may declare that changed content and data do not cause a re-run.
    OR EXISTS (
      -- Lookup by key. As a join, the planner applied the test to bodies that are not JSON.
      SELECT FROM told_otherwise t WHERE (
        SELECT convert_from(o.body, 'UTF8')::jsonb #>> '{run,on_change}' FROM object o WHERE o.hash = decode(t.role, 'hex'))
        IS DISTINCT FROM 'keep')
  UNION ALL
  SELECT 'secret' WHERE adds_secret(review) OR EXISTS (
    SELECT FROM carried c JOIN template t ON t.role = c.is_now ->> 'role'
    CROSS JOIN LATERAL jsonb_each(t.template) v CROSS JOIN LATERAL secret_references(v.value) r
    WHERE c.was ->> 'role' IS DISTINCT FROM c.is_now ->> 'role'
      -- Other data may replace the value of this key.
      AND (c.is_now -> 'data' ? v.key) IS NOT TRUE
      AND (coalesce(
        (SELECT doc.is_now FROM doc WHERE doc.kind = 'deployment' AND doc.id = (c.is_now ->> 'deployment')::uuid),
        deployment_body((c.is_now ->> 'deployment')::uuid))
        #> ARRAY['roles', split_part(c.key, '/', 1), 'data'] ? v.key) IS NOT TRUE
      AND r NOT IN (
        SELECT secret_references(o.template) FROM template o WHERE o.role = c.was ->> 'role'
        UNION ALL SELECT secret_references(c.was -> 'data')
        UNION ALL SELECT secret_references(deployment_body((c.was ->> 'deployment')::uuid)
          #> ARRAY['roles', split_part(c.key, '/', 1), 'data'])))
$$;

-- Permissions -------------------------------------------------------------------------------------

-- The deployments that a review touches: those that it writes, the one that it was proposed for,
-- and *system* if it changes the policy. A person needs the permission in each of them to submit,
-- review or commit. This function is the only definition; the use cases call it. A deployment that
-- the review creates is covered by its parent, which the review writes.
CREATE OR REPLACE FUNCTION touched_by(review bigint) RETURNS uuid[]
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  SELECT array(
    SELECT w.deployment_id FROM written_by(review) w JOIN deployment d ON d.id = w.deployment_id
    UNION
    SELECT coalesce((SELECT n.deployment_id FROM node n WHERE n.id = p.node_id), p.deployment_id)
    FROM review s JOIN proposal p ON p.id = s.proposal_id WHERE s.id = review
    UNION
    SELECT d.id FROM deployment d WHERE d.system
      AND EXISTS (SELECT FROM review s WHERE s.id = review AND s.new_policy_hash IS NOT NULL))
$$;

-- Permissions that a person has in part of the tree: the deployments of their grants with all
-- descendants.
CREATE OR REPLACE FUNCTION covered(who uuid) RETURNS TABLE (deployment_id uuid, permission text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  WITH RECURSIVE inside AS (
    SELECT g.deployment_id, g.permission FROM scoped_grant g WHERE g.person_id = who
    UNION
    SELECT d.id, i.permission FROM inside i JOIN deployment d ON d.parent = i.deployment_id)
  SELECT i.deployment_id, i.permission FROM inside i
$$;

-- Whether a person has one of these permissions in all of these deployments: everywhere, or by a
-- grant on each one or on an ancestor.
CREATE OR REPLACE FUNCTION may_in(p person, wanted text[], places uuid[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF p.permissions && wanted THEN
    RETURN true;
  END IF;
  IF coalesce(cardinality(places), 0) = 0
     OR NOT EXISTS (SELECT FROM scoped_grant g WHERE g.person_id = p.id AND g.permission = ANY (wanted)) THEN
    RETURN false;
  END IF;
  RETURN EXISTS (
    SELECT FROM unnest(wanted) AS w (permission) WHERE NOT EXISTS (
      SELECT FROM unnest(places) AS place (id) WHERE NOT EXISTS (
        WITH RECURSIVE above AS (
          SELECT place.id AS id
          UNION
          SELECT d.parent FROM above a JOIN deployment d ON d.id = a.id WHERE d.parent IS NOT NULL)
        SELECT FROM above a JOIN scoped_grant g ON g.deployment_id = a.id
        WHERE g.person_id = p.id AND g.permission = w.permission)));
END $$;

-- Whether a person may review changes to these deployments: human, enabled, with the permission in
-- all of them.
DROP FUNCTION IF EXISTS may_review(person);
CREATE OR REPLACE FUNCTION may_review(p person, places uuid[]) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT p.kind = 'human' AND NOT p.disabled AND may_in(p, ARRAY['reviewer'], places)
$$;

-- The deployments that a review touches, or none if no scoped grant exists: without scoped grants,
-- the deployments do not matter.
CREATE OR REPLACE FUNCTION places_of(review bigint) RETURNS uuid[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM scoped_grant) THEN
    RETURN '{}';
  END IF;
  RETURN touched_by(review);
END $$;

-- Keeps at least one enabled human admin. Transactions that remove an admin wait for each other.
CREATE OR REPLACE FUNCTION guard_admins() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF OLD.disabled OR NOT 'admin' = ANY (OLD.permissions) OR (NOT NEW.disabled AND 'admin' = ANY (NEW.permissions)) THEN
    RETURN NEW;
  END IF;
  -- An older snapshot would still show an admin whom another transaction has removed.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'An admin can only be removed in a READ COMMITTED transaction'
      USING ERRCODE = 'GY024';
  END IF;
  PERFORM pg_advisory_xact_lock(6);
  IF NOT EXISTS (SELECT FROM person p WHERE p.id <> OLD.id AND p.kind = 'human' AND NOT p.disabled AND 'admin' = ANY (p.permissions)) THEN
    RAISE EXCEPTION 'Account % is the last admin', OLD.name
      USING ERRCODE = 'GY024', HINT = 'Make another person an admin first.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_admins BEFORE UPDATE OF disabled, permissions ON person FOR EACH ROW EXECUTE FUNCTION guard_admins();

-- Gantry's own actions appear under this name, the engine's OWN_NAME (a test in control compares
-- them). A person who already had the name keeps it.
CREATE OR REPLACE FUNCTION guard_name() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NEW.name = 'gantry' AND (TG_OP = 'INSERT' OR OLD.name <> NEW.name) THEN
    RAISE EXCEPTION 'A person cannot have the name "gantry"'
      USING ERRCODE = 'GY026', HINT = 'Gantry uses this name for itself. Choose another name.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_name BEFORE INSERT OR UPDATE OF name ON person FOR EACH ROW EXECUTE FUNCTION guard_name();

-- Every change of permissions updates person.permissions, even if only a scoped grant changes.
-- Disabling a person counts as such a change.
CREATE OR REPLACE FUNCTION guard_grants_version() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  NEW.grants_version := OLD.grants_version + 1;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_grants_version BEFORE UPDATE OF permissions, disabled ON person FOR EACH ROW EXECUTE FUNCTION guard_grants_version();

-- Takes the row lock of the person, which permission checks hold too. The system deployment is
-- rejected: a grant there would be a grant everywhere.
CREATE OR REPLACE FUNCTION guard_grant() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM FROM person WHERE id = coalesce(NEW.person_id, OLD.person_id) FOR NO KEY UPDATE;
  IF TG_OP = 'DELETE' THEN
    RETURN OLD;
  END IF;
  IF NOT EXISTS (SELECT FROM deployment d WHERE d.id = NEW.deployment_id AND NOT d.system AND d.removed_in IS NULL) THEN
    RAISE EXCEPTION 'A permission can only be granted in an existing deployment below system'
      USING ERRCODE = 'GY025', HINT = 'Omit the deployment to grant the permission everywhere.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_grant BEFORE INSERT OR DELETE ON scoped_grant FOR EACH ROW EXECUTE FUNCTION guard_grant();

CREATE OR REPLACE FUNCTION guard_blueprint_change(new_blueprint blueprint, h head) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  s review;
  p proposal;
  parent_blueprint blueprint;
  named text;
  others text;
  approving int;
  unsigned text;
  demanded boolean;
  threads int;
  places uuid[];
BEGIN
  SELECT * INTO s FROM review WHERE id = new_blueprint.review_id;
  SELECT * INTO p FROM proposal WHERE id = s.proposal_id FOR UPDATE;
  SELECT * INTO parent_blueprint FROM blueprint WHERE number = new_blueprint.parent;
  IF s.epoch <> h.epoch THEN
    RAISE EXCEPTION 'Review % is from epoch %, but the current epoch is %', s.id, s.epoch, h.epoch
      USING ERRCODE = 'GY008',
        HINT = 'A backup was restored since then. Submit the proposal again.';
  END IF;
  IF p.state <> 'open' OR p.version <> s.version THEN
    RAISE EXCEPTION 'Proposal % is % at version %, but review % is of version %', p.id, p.state,
      p.version, s.id, s.version
      USING ERRCODE = 'GY005', HINT = 'Review and commit the newest version.';
  END IF;
  IF s.policy_number <> h.policy_number THEN
    RAISE EXCEPTION 'Review % was submitted under policy %, but policy % is in force', s.id,
      s.policy_number, h.policy_number
      USING ERRCODE = 'GY006', HINT = 'Submit the proposal again.';
  END IF;
  IF new_blueprint.enabled <> parent_blueprint.enabled THEN
    RAISE EXCEPTION 'A change cannot turn execution on or off' USING ERRCODE = 'GY003';
  END IF;
  -- A plan without changes has not been checked either.
  IF s.new_policy_hash IS NULL AND NOT EXISTS (SELECT FROM review_document d WHERE d.review_id = s.id) THEN
    RAISE EXCEPTION 'Review % changes nothing', s.id USING ERRCODE = 'GY009',
      HINT = 'Submit the proposal again.';
  END IF;

  -- Everyone who edited or submitted the committed proposal is an author, listed or not.
  SELECT string_agg(DISTINCT a.name, ', ') INTO named FROM person a
  WHERE (a.id = s.created_by OR EXISTS (
      SELECT FROM edit e WHERE e.proposal_id = p.id AND (e.actor = a.id AND NOT e.undone OR a.id = ANY (e.touched_by))))
    AND NOT EXISTS (SELECT FROM review_author x WHERE x.review_id = s.id AND x.person_id = a.id);
  IF named IS NOT NULL OR NOT EXISTS (SELECT FROM review_author x WHERE x.review_id = s.id) THEN
    RAISE EXCEPTION 'Review % does not list these authors: %', s.id, coalesce(named, 'all')
      USING ERRCODE = 'GY009', HINT = 'Submit the proposal again.';
  END IF;

  -- Nothing in the base has changed that the review reads. The base contains its deployment, the
  -- ancestors and every deployment that it writes.
  SELECT string_agg(m.name, ', ' ORDER BY m.name) INTO named FROM moved_base(s.id) m;
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Deployments that review % is based on have changed since: %', s.id, named
      USING ERRCODE = 'GY004', HINT = 'Submit the proposal again to plan it on the current target.';
  END IF;
  SELECT string_agg(d.name, ', ' ORDER BY d.name) INTO named
  FROM (SELECT w.deployment_id FROM written_by(s.id) w
        UNION SELECT l.deployment_id FROM review_lineage(s.id) l) x
  JOIN deployment d ON d.id = x.deployment_id
  WHERE NOT EXISTS (SELECT FROM review_base b WHERE b.review_id = s.id AND b.deployment_id = d.id);
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Review % changes or reads deployments outside its base: %', s.id, named
      USING ERRCODE = 'GY009';
  END IF;

  -- The documents that the review replaces are unchanged since planning, and the new root differs
  -- from its parent in exactly these.
  IF NOT replaces_as_listed(parent_blueprint.root, new_blueprint.root, s.id) THEN
    WITH was AS MATERIALIZED (SELECT * FROM root_documents(parent_blueprint.root)),
         now_is AS MATERIALIZED (SELECT * FROM root_documents(new_blueprint.root)),
         listed AS (SELECT d.kind, d.id, d.old_hash, d.new_hash FROM review_document d WHERE d.review_id = s.id),
         changed AS (SELECT kind, id, was.hash AS old_hash, now_is.hash AS new_hash
                     FROM was FULL JOIN now_is USING (kind, id) WHERE was.hash IS DISTINCT FROM now_is.hash)
    SELECT (SELECT string_agg(x.kind || ' ' || x.id, ', ') FROM (
              SELECT kind, id FROM listed LEFT JOIN was USING (kind, id) WHERE was.hash IS DISTINCT FROM listed.old_hash LIMIT 5) x),
           (SELECT string_agg(x.kind || ' ' || x.id, ', ') FROM (
              (TABLE changed EXCEPT TABLE listed) UNION (TABLE listed EXCEPT TABLE changed) LIMIT 5) x)
    INTO named, others;
    IF named IS NOT NULL THEN
      RAISE EXCEPTION 'Documents that review % replaces have changed since: %', s.id, named
        USING ERRCODE = 'GY004',
          HINT = 'Submit the proposal again to plan it on the current target.';
    END IF;
    IF others IS NOT NULL THEN
      RAISE EXCEPTION
        'The new root differs from blueprint % in other documents than review % lists: %',
        new_blueprint.parent, s.id, others USING ERRCODE = 'GY010';
    END IF;
    PERFORM check_canonical(new_blueprint.root);
  END IF;

  -- The risks determine the number of approvals, so the review must list all of them.
  IF NOT s.risk @> ARRAY['removal', 'rerun', 'move', 'secret', 'connection'] THEN
    SELECT string_agg(r.risk, ', ') INTO named FROM risks_of_documents(s.id) r WHERE r.risk <> ALL (s.risk);
    IF named IS NOT NULL THEN
      RAISE EXCEPTION 'Review % does not list these risks: %', s.id, named
        USING ERRCODE = 'GY009', HINT = 'Submit the proposal again.';
    END IF;
  END IF;

  -- The latest verdict of each person who may review now. The row locks keep these accounts enabled
  -- until the commit.
  PERFORM FROM person WHERE id IN (SELECT person_id FROM verdict WHERE review_id = s.id) ORDER BY id FOR SHARE;
  places := places_of(s.id);
  demanded := EXISTS (SELECT FROM signature_demand g WHERE g.review_id = s.id);
  -- A deployment may have got a new parent since the review was submitted.
  IF NOT demanded AND asks_signature(s.id) THEN
    RAISE EXCEPTION
      'The approvals of review % must now be signed, but it was submitted before that rule '
      'applied', s.id
      USING ERRCODE = 'GY060', HINT = 'Submit the proposal again.';
  END IF;
  WITH last AS (
    SELECT DISTINCT ON (v.person_id) v.id, v.person_id, v.kind, v.at FROM verdict v JOIN person w ON w.id = v.person_id
    WHERE v.review_id = s.id AND v.id > w.verdicts_void_to ORDER BY v.person_id, v.id DESC),
  counted AS (
    SELECT l.kind, who.name, l.kind = 'approve' AND approval_barred(who.id, s.id, l.at) AS barred,
           demanded AND l.kind = 'approve' AND NOT is_signed(l.id) AS unsigned
    FROM last l JOIN person who ON who.id = l.person_id
    WHERE may_review(who, places) AND NOT EXISTS (
      SELECT FROM review_author x WHERE x.review_id = s.id AND x.person_id = l.person_id))
  SELECT count(*) FILTER (WHERE c.kind = 'approve' AND NOT c.barred AND NOT c.unsigned),
         string_agg(c.name, ', ' ORDER BY c.name) FILTER (WHERE c.kind <> 'approve'),
         string_agg(c.name, ', ' ORDER BY c.name) FILTER (WHERE c.barred),
         string_agg(c.name, ', ' ORDER BY c.name) FILTER (WHERE c.unsigned AND NOT c.barred)
  INTO approving, named, others, unsigned FROM counted c;
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Objections by % block review %', named, s.id
      USING ERRCODE = 'GY007', HINT = 'Change the proposal, or ask them to approve it.';
  END IF;
  IF approving < s.approvals_needed AND others IS NOT NULL THEN
    RAISE EXCEPTION
      'Review % has % of % approvals. Approvals by % do not count, because their access or that '
      'of an author is new', s.id, approving,
      s.approvals_needed, others
      USING ERRCODE = 'GY040',
        HINT =
          'Ask another reviewer to approve it, or another admin to confirm the new access. The '
          'review shows who got access from whom.';
  END IF;
  IF approving < s.approvals_needed AND unsigned IS NOT NULL THEN
    RAISE EXCEPTION
      'Review % has % of % signed approvals. Approvals by % are not signed with a confirmed '
      'passkey', s.id, approving,
      s.approvals_needed, unsigned
      USING ERRCODE = 'GY060',
        HINT = 'Ask them to approve it again and to sign with a confirmed passkey.';
  END IF;
  IF approving < s.approvals_needed THEN
    RAISE EXCEPTION 'Review % has % of % approvals', s.id, approving, s.approvals_needed
      USING ERRCODE = 'GY007', HINT = 'Ask a reviewer who is not an author to approve it.';
  END IF;

  -- Threads belong to the proposal: a new review does not settle questions on an earlier one.
  SELECT count(*), string_agg(DISTINCT who.name, ', ') INTO threads, named
  FROM review o JOIN comment c ON c.review_id = o.id AND c.thread_id IS NULL AND c.resolved_by IS NULL
  JOIN person who ON who.id = c.person_id WHERE o.proposal_id = p.id;
  IF threads > 0 THEN
    RAISE EXCEPTION 'Proposal % has % open threads, started by %', p.id, threads, named
      USING ERRCODE = 'GY017',
        HINT =
          'Ask the people who started the threads, or a reviewer who is not an author, to resolve '
          'them.';
  END IF;
END $$;

CREATE OR REPLACE FUNCTION guard_blueprint() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  h head;
  parent_blueprint blueprint;
BEGIN
  -- An older snapshot would miss verdicts given since.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION
      'A blueprint can only be inserted in a READ COMMITTED transaction, and this one is %',
      current_setting('transaction_isolation')
      USING ERRCODE = 'GY003', HINT = 'Begin a READ COMMITTED transaction.';
  END IF;
  SELECT * INTO h FROM head FOR UPDATE;
  NEW.xid := pg_current_xact_id();
  NEW.committed_at := now();
  IF NEW.epoch <> h.epoch THEN
    RAISE EXCEPTION 'The blueprint is from epoch %, but the current epoch is %', NEW.epoch, h.epoch
      USING ERRCODE = 'GY008', HINT = 'A backup was restored since then. Read the head again.';
  END IF;
  IF coalesce(NEW.parent, 0) <> h.number THEN
    RAISE EXCEPTION 'Blueprint % has parent %, but the head is %', NEW.number, coalesce(NEW.parent, 0),
      h.number
      USING ERRCODE = 'GY003', HINT = 'Another blueprint was committed in the meantime. Try again.';
  END IF;
  IF NEW.kind = 'genesis' THEN
    PERFORM check_canonical(NEW.root);
    RETURN NEW;
  END IF;
  -- The committer needs the permission at this moment. The row lock keeps the account enabled until
  -- the commit.
  PERFORM FROM person WHERE id = NEW.committed_by FOR SHARE;
  IF NOT EXISTS (SELECT FROM person p WHERE p.id = NEW.committed_by AND NOT p.disabled AND CASE NEW.kind
      WHEN 'change' THEN may_in(p, ARRAY['operator', 'reviewer'], places_of(NEW.review_id))
      ELSE 'operator' = ANY (p.permissions) END) THEN
    RAISE EXCEPTION 'Account % may not commit blueprint %',
      coalesce((SELECT name FROM person WHERE id = NEW.committed_by), 'unknown'), NEW.number
      USING ERRCODE = 'GY019',
        HINT =
          'An account needs the operator permission everywhere. For a change, operator or '
          'reviewer in all its deployments is enough.';
  END IF;
  SELECT * INTO parent_blueprint FROM blueprint WHERE number = NEW.parent;
  -- The rows of a change are compared once, at its end. So a transaction can commit only one
  -- change.
  IF NEW.kind = 'change' AND EXISTS (SELECT FROM blueprint t WHERE t.xid = pg_current_xact_id() AND t.epoch = h.epoch AND t.kind <> 'switch') THEN
    RAISE EXCEPTION 'A transaction can commit only one change' USING ERRCODE = 'GY003',
      HINT = 'Commit the next change in a new transaction.';
  END IF;
  IF NEW.kind = 'change' THEN
    PERFORM guard_blueprint_change(NEW, h);
    RETURN NEW;
  END IF;
  IF NEW.root <> parent_blueprint.root OR NEW.enabled = parent_blueprint.enabled THEN
    RAISE EXCEPTION 'A switch must keep the root of its parent and turn execution on or off'
      USING ERRCODE = 'GY003', HINT = 'Execution may already be in that state.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_blueprint BEFORE INSERT ON blueprint FOR EACH ROW EXECUTE FUNCTION guard_blueprint();

-- At the end of the transaction, the head has moved and every document of the new blueprint is
-- projected.
CREATE OR REPLACE FUNCTION guard_projected() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  h head;
  named text;
BEGIN
  SELECT * INTO h FROM head;
  IF h.number <> NEW.number OR h.enabled <> NEW.enabled OR h.policy_number = 0 THEN
    RAISE EXCEPTION 'Blueprint % was inserted, but the head is % (policy %)', NEW.number, h.number,
      h.policy_number
      USING ERRCODE = 'GY014';
  END IF;
  IF NEW.kind = 'switch' THEN
    RETURN NULL;
  END IF;
  IF NEW.kind = 'genesis' THEN
    SELECT string_agg(x.what, ', ') INTO named FROM (
      SELECT r.kind || ' ' || r.id AS what FROM root_documents(NEW.root) r
      LEFT JOIN deployment d ON r.kind = 'deployment' AND d.id = r.id AND d.head_no = NEW.number
      LEFT JOIN node n ON r.kind = 'node' AND n.id = r.id
      WHERE coalesce(d.doc, n.doc) IS DISTINCT FROM r.hash LIMIT 5) x;
  ELSE
    IF NOT EXISTS (SELECT FROM proposal p JOIN review s ON s.proposal_id = p.id
                   WHERE s.id = NEW.review_id AND p.state = 'committed') THEN
      RAISE EXCEPTION 'Blueprint % was inserted, but its proposal is not closed', NEW.number
        USING ERRCODE = 'GY014';
    END IF;
    -- The approved policy and the jig switches in the document of *system* are in force.
    IF (SELECT y.hash FROM policy y WHERE y.number = h.policy_number) IS DISTINCT FROM
       (SELECT coalesce(s.new_policy_hash, y.hash) FROM review s JOIN policy y ON y.number = s.policy_number
        WHERE s.id = NEW.review_id) AND NOT is_owner() THEN
      RAISE EXCEPTION 'Blueprint % was inserted, but the policy in force is not the approved one',
        NEW.number USING ERRCODE = 'GY014';
    END IF;
    SELECT string_agg(j.name, ', ') INTO named FROM jig j, deployment d
    WHERE d.system AND EXISTS (SELECT FROM review_document x WHERE x.review_id = NEW.review_id AND x.kind = 'deployment' AND x.id = d.id)
      AND j.active = (jigs_off(d.doc) ? j.name);
    IF named IS NOT NULL AND NOT is_owner() THEN
      RAISE EXCEPTION
        'Blueprint % was inserted, but these jigs do not match the document of system: %',
        NEW.number, named
        USING ERRCODE = 'GY014';
    END IF;
    SELECT string_agg(x.what, ', ') INTO named FROM (
      SELECT d.kind || ' ' || d.id AS what FROM review_document d
      LEFT JOIN deployment dep ON d.kind = 'deployment' AND dep.id = d.id AND dep.removed_in IS NULL
      LEFT JOIN node n ON d.kind = 'node' AND n.id = d.id AND n.removed_in IS NULL
      WHERE d.review_id = NEW.review_id AND coalesce(dep.doc, n.doc) IS DISTINCT FROM d.new_hash
      UNION ALL
      -- A removed deployment has no children, nodes or noderoles left, and every node has the
      -- noderoles of its document.
      SELECT 'removal of deployment ' || d.id FROM review_document d
      WHERE d.review_id = NEW.review_id AND d.kind = 'deployment' AND d.new_hash IS NULL
        AND (EXISTS (SELECT FROM deployment c WHERE c.parent = d.id AND c.removed_in IS NULL)
             OR EXISTS (SELECT FROM node n WHERE n.deployment_id = d.id AND n.removed_in IS NULL)
             OR EXISTS (SELECT FROM noderole r WHERE r.deployment_id = d.id AND r.disposition = 'in_service'))
      UNION ALL
      SELECT 'noderoles of node ' || d.id FROM review_document d LEFT JOIN object o ON o.hash = d.new_hash
      WHERE d.review_id = NEW.review_id AND d.kind = 'node'
        AND (SELECT array_agg(k ORDER BY k) FROM jsonb_object_keys(
               coalesce(convert_from(o.body, 'UTF8')::jsonb -> 'noderoles', '{}')) k)
            IS DISTINCT FROM
            (SELECT array_agg(k ORDER BY k) FROM noderole r
             CROSS JOIN LATERAL (SELECT r.role || CASE r.instance WHEN 0 THEN '' ELSE '/' || r.instance END AS k) key
             WHERE r.node_id = d.id AND r.disposition = 'in_service')
      UNION ALL
      SELECT 'head_no of ' || dep.name FROM written_by(NEW.review_id) w JOIN deployment dep ON dep.id = w.deployment_id
      WHERE dep.head_no <> NEW.number LIMIT 5) x;
  END IF;
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Blueprint % was inserted, but these rows do not match its documents: %',
      NEW.number, named USING ERRCODE = 'GY014';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_projected AFTER INSERT ON blueprint DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION guard_projected();

CREATE OR REPLACE FUNCTION guard_head() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF (NEW.number, NEW.enabled) IS DISTINCT FROM (OLD.number, OLD.enabled) AND NOT EXISTS (
    SELECT FROM blueprint t WHERE t.number = NEW.number AND t.parent IS NOT DISTINCT FROM nullif(OLD.number, 0)
      AND t.enabled = NEW.enabled AND t.xid = pg_current_xact_id()) THEN
    RAISE EXCEPTION 'The head can only move to a blueprint that this transaction inserted'
      USING ERRCODE = 'GY002';
  END IF;
  IF NEW.policy_number <> OLD.policy_number AND NOT (
    EXISTS (SELECT FROM policy p JOIN blueprint t ON t.xid = pg_current_xact_id() AND t.epoch = NEW.epoch
            LEFT JOIN review s ON s.id = t.review_id
            WHERE p.number = NEW.policy_number AND (t.kind = 'genesis' OR s.new_policy_hash = p.hash))) THEN
    RAISE EXCEPTION 'Policy % can only come into force with the commit that introduces it',
      NEW.policy_number
      USING ERRCODE = 'GY002';
  END IF;
  IF NEW.epoch < OLD.epoch THEN
    RAISE EXCEPTION 'The epoch can only rise' USING ERRCODE = 'GY002';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_head BEFORE UPDATE ON head FOR EACH ROW EXECUTE FUNCTION guard_head();
CREATE OR REPLACE FUNCTION guard_head_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'The row of table head cannot be deleted' USING ERRCODE = 'GY001';
END $$;
CREATE TRIGGER guard_head_stays BEFORE DELETE OR TRUNCATE ON head FOR EACH STATEMENT EXECUTE FUNCTION guard_head_stays();

-- Only the commit of a review that names the policy inserts it. A policy requires at least one
-- approval.
CREATE OR REPLACE FUNCTION guard_policy() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  SELECT t.number INTO NEW.blueprint_number FROM blueprint t JOIN head h ON h.epoch = t.epoch LEFT JOIN review s ON s.id = t.review_id
  WHERE t.xid = pg_current_xact_id() AND (t.kind = 'genesis' OR s.new_policy_hash = NEW.hash);
  IF NEW.blueprint_number IS NULL THEN
    RAISE EXCEPTION 'A policy can only be inserted by the commit that introduces it'
      USING ERRCODE = 'GY002';
  END IF;
  IF (approvals_asked(NEW.hash, '{}') >= 1) IS NOT TRUE THEN
    RAISE EXCEPTION 'A policy must require at least one approval' USING ERRCODE = 'GY002';
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION approvals_asked(policy_hash bytea, risks text[]) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT greatest((body ->> 'approvals')::int,
                  (SELECT max(r.value::int) FROM jsonb_each_text(body -> 'by_risk') r WHERE r.key = ANY (risks)))
  FROM (SELECT convert_from(o.body, 'UTF8')::jsonb AS body FROM object o
        WHERE o.hash = policy_hash AND o.kind = 'policy') p
$$;
CREATE TRIGGER guard_policy BEFORE INSERT ON policy FOR EACH ROW EXECUTE FUNCTION guard_policy();

-- Proposals, reviews, verdicts --------------------------------------------------------------------

CREATE OR REPLACE FUNCTION guard_proposal() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'Proposal % is % and can no longer change', OLD.id, OLD.state
      USING ERRCODE = 'GY016', HINT = 'Open another proposal.';
  END IF;
  IF NEW.version NOT IN (OLD.version, OLD.version::bigint + 1) THEN
    RAISE EXCEPTION 'The version of a proposal can only rise by one' USING ERRCODE = 'GY016';
  END IF;
  IF NEW.state = 'committed' AND NOT EXISTS (
    SELECT FROM blueprint t JOIN review s ON s.id = t.review_id
    WHERE t.xid = pg_current_xact_id() AND s.proposal_id = NEW.id) THEN
    RAISE EXCEPTION 'Proposal % can only be committed together with its blueprint', NEW.id
      USING ERRCODE = 'GY002';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_proposal BEFORE UPDATE ON proposal FOR EACH ROW EXECUTE FUNCTION guard_proposal();

CREATE OR REPLACE FUNCTION guard_edit() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE p proposal;
BEGIN
  SELECT * INTO p FROM proposal WHERE id = NEW.proposal_id FOR UPDATE;
  IF p.state <> 'open' THEN
    RAISE EXCEPTION 'Proposal % is % and accepts no edits', p.id, p.state
      USING ERRCODE = 'GY005', HINT = 'Open another proposal.';
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.dropped AND NOT (NEW.dropped AND NEW.undone) THEN
    RAISE EXCEPTION 'Edit % of proposal % cannot be redone, because another edit followed it',
      NEW.seq, p.id USING ERRCODE = 'GY016';
  END IF;
  IF TG_OP = 'UPDATE' AND NOT OLD.touched_by <@ NEW.touched_by THEN
    RAISE EXCEPTION 'Authors of edit % of proposal % cannot be removed', NEW.seq, p.id
      USING ERRCODE = 'GY001';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_edit BEFORE INSERT OR UPDATE ON edit FOR EACH ROW EXECUTE FUNCTION guard_edit();

CREATE OR REPLACE FUNCTION guard_review() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  h head;
  p proposal;
  asked int;
BEGIN
  SELECT * INTO p FROM proposal WHERE id = NEW.proposal_id FOR UPDATE;
  SELECT * INTO h FROM head;
  NEW.xid := pg_current_xact_id();
  NEW.created_at := now();
  IF p.state <> 'open' OR p.version <> NEW.version THEN
    RAISE EXCEPTION 'Proposal % is % at version %, not %', p.id, p.state, p.version, NEW.version
      USING ERRCODE = 'GY005', HINT = 'Reload the proposal and submit its newest version.';
  END IF;
  IF NEW.policy_number <> h.policy_number THEN
    RAISE EXCEPTION 'Policy % is in force, not policy %', h.policy_number, NEW.policy_number
      USING ERRCODE = 'GY006';
  END IF;
  IF p.node_id IS NOT NULL AND NEW.new_policy_hash IS NOT NULL THEN
    RAISE EXCEPTION 'The proposal is for one node, but it also changes the policy'
      USING ERRCODE = 'GY022', HINT = 'Open a proposal for the deployment instead.';
  END IF;
  IF NEW.epoch <> h.epoch THEN
    RAISE EXCEPTION 'The current epoch is %, not %', h.epoch, NEW.epoch USING ERRCODE = 'GY008';
  END IF;
  -- A policy change must satisfy both the old and the new policy. An unreadable policy requires
  -- 1,000 approvals.
  SELECT greatest(approvals_asked(y.hash, NEW.risk),
                  CASE WHEN NEW.new_policy_hash IS NOT NULL THEN coalesce(approvals_asked(NEW.new_policy_hash, NEW.risk), 1000) END)
  INTO asked FROM policy y WHERE y.number = NEW.policy_number;
  IF (NEW.approvals_needed >= asked) IS NOT TRUE THEN
    RAISE EXCEPTION 'Policy % requires % approvals, but the review requires %', NEW.policy_number,
      asked, NEW.approvals_needed
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_review BEFORE INSERT ON review FOR EACH ROW EXECUTE FUNCTION guard_review();

CREATE OR REPLACE FUNCTION guard_review_part() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM review s JOIN head h ON h.epoch = s.epoch
                 WHERE s.id = NEW.review_id AND s.xid = pg_current_xact_id()) THEN
    RAISE EXCEPTION 'Review % is already submitted and cannot be extended', NEW.review_id
      USING ERRCODE = 'GY013', HINT = 'Submit the proposal again.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_review_part BEFORE INSERT ON review_base FOR EACH ROW EXECUTE FUNCTION guard_review_part();
CREATE TRIGGER guard_review_part BEFORE INSERT ON review_author FOR EACH ROW EXECUTE FUNCTION guard_review_part();
CREATE TRIGGER guard_review_part BEFORE INSERT ON review_document FOR EACH ROW EXECUTE FUNCTION guard_review_part();

-- A node-scoped proposal changes only its node. Required noderoles may be added, and dependent ones
-- removed, on phantom nodes of deployments. Added roles become bindable in their deployment,
-- without any data. Any other change needs a proposal for the deployment.
CREATE OR REPLACE FUNCTION guard_scope() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE beyond text;
BEGIN
  SELECT string_agg(x.what, ', ') INTO beyond FROM (
    SELECT a.kind || ' ' || a.id AS what
    FROM added a JOIN review s ON s.id = a.review_id JOIN proposal p ON p.id = s.proposal_id
    WHERE p.node_id IS NOT NULL AND NOT keeps_to_node(a.kind, a.id, a.old_hash, a.new_hash, p.node_id) LIMIT 5) x;
  IF beyond IS NOT NULL THEN
    RAISE EXCEPTION 'The proposal is for one node, but it also changes: %', beyond
      USING ERRCODE = 'GY022', HINT = 'Open a proposal for the deployment instead.';
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION keeps_to_node(kind text, id uuid, old_hash bytea, new_hash bytea, scope uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  was jsonb := (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = old_hash);
  is_now jsonb := (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = new_hash);
BEGIN
  IF kind = 'node' AND id = scope THEN
    RETURN was IS NULL OR is_now IS NULL OR was -> 'deployment' = is_now -> 'deployment';
  END IF;
  IF was IS NULL OR is_now IS NULL THEN
    RETURN false;
  END IF;
  IF kind = 'node' THEN
    RETURN was - 'noderoles' = is_now - 'noderoles' AND EXISTS (SELECT FROM node n WHERE n.id = keeps_to_node.id AND n.phantom);
  END IF;
  RETURN was - 'roles' = is_now - 'roles' AND NOT EXISTS (
    SELECT FROM jsonb_each(coalesce(was -> 'roles', '{}')) o FULL JOIN jsonb_each(coalesce(is_now -> 'roles', '{}')) n USING (key)
    WHERE o.value IS DISTINCT FROM n.value AND (o.value IS NOT NULL OR n.value -> 'data' IS DISTINCT FROM '{}'));
END $$;
CREATE TRIGGER guard_scope AFTER INSERT ON review_document REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION guard_scope();

-- The result of replanning an outdated review is recorded once, at the version that the replan
-- created.
CREATE OR REPLACE FUNCTION guard_replan() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE p proposal;
BEGIN
  SELECT * INTO p FROM proposal WHERE id = NEW.proposal_id FOR UPDATE;
  IF p.state <> 'open' OR p.version <> NEW.version
     OR EXISTS (SELECT FROM review s WHERE s.id = NEW.before_id AND s.version <> NEW.version - 1)
     OR EXISTS (SELECT FROM review s WHERE s.id = NEW.after_id AND s.version <> NEW.version) THEN
    RAISE EXCEPTION 'Proposal % is % at version %, and was not replanned as version %', p.id,
      p.state, p.version, NEW.version
      USING ERRCODE = 'GY005', HINT = 'Reload the proposal.';
  END IF;
  IF NOT is_outdated(NEW.before_id) THEN
    RAISE EXCEPTION 'Cannot replan review %: its base has not changed', NEW.before_id
      USING ERRCODE = 'GY035', HINT = 'Only people can change the proposal. Sign in.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_replan BEFORE INSERT ON replan FOR EACH ROW EXECUTE FUNCTION guard_replan();

-- Takes the proposal's row lock, which a commit holds too: no verdict is added between counting and
-- committing.
CREATE OR REPLACE FUNCTION guard_verdict() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  h head;
  s review;
  p proposal;
  who person;
BEGIN
  SELECT * INTO s FROM review WHERE id = NEW.review_id;
  SELECT * INTO p FROM proposal WHERE id = s.proposal_id FOR UPDATE;
  SELECT * INTO h FROM head;
  IF NEW.person_id IS NULL THEN
    RAISE EXCEPTION 'A policy cannot give a verdict' USING ERRCODE = 'GY012',
      HINT = 'Ask a person to review the change.';
  END IF;
  -- Waits for transactions that disable this person or change their access.
  SELECT * INTO who FROM person WHERE id = NEW.person_id FOR SHARE;
  NEW.at := clock_timestamp();
  IF s.xid = pg_current_xact_id() THEN
    RAISE EXCEPTION 'Review % was submitted in this transaction, so it cannot have a verdict yet',
      s.id
      USING ERRCODE = 'GY013', HINT = 'Give the verdict in a later transaction.';
  END IF;
  IF who.id = s.created_by
     OR EXISTS (SELECT FROM review_author a WHERE a.review_id = s.id AND a.person_id = who.id)
     OR EXISTS (SELECT FROM edit e WHERE e.proposal_id = p.id
                  AND (e.actor = who.id AND NOT e.undone OR who.id = ANY (e.touched_by))) THEN
    RAISE EXCEPTION 'Account % is an author of review % and cannot give a verdict on it', who.name,
      s.id
      USING ERRCODE = 'GY011', HINT = 'Ask another reviewer.';
  END IF;
  IF NOT may_review(who, places_of(s.id)) THEN
    RAISE EXCEPTION 'Account % may not review this change', coalesce(who.name, NEW.person_id::text)
      USING ERRCODE = 'GY012',
        HINT =
          'A reviewer must be an enabled person with the reviewer permission in all deployments '
          'that the change touches.';
  END IF;
  IF p.state <> 'open' OR p.version <> s.version THEN
    RAISE EXCEPTION 'Proposal % is % at version %, but review % is of version %', p.id, p.state,
      p.version, s.id, s.version
      USING ERRCODE = 'GY005', HINT = 'Give your verdict on the newest review of the proposal.';
  END IF;
  IF s.epoch <> h.epoch THEN
    RAISE EXCEPTION 'Review % is from epoch %, but the current epoch is %', s.id, s.epoch, h.epoch
      USING ERRCODE = 'GY008',
        HINT = 'A backup was restored since then. Submit the proposal again.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_verdict BEFORE INSERT ON verdict FOR EACH ROW EXECUTE FUNCTION guard_verdict();

-- Whether a person edited or submitted any version of a proposal.
CREATE OR REPLACE FUNCTION is_author(proposal bigint, person uuid) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM edit e WHERE e.proposal_id = proposal
                   AND (e.actor = person AND NOT e.undone OR person = ANY (e.touched_by)))
      OR EXISTS (SELECT FROM review s JOIN review_author a ON a.review_id = s.id
                 WHERE s.proposal_id = proposal AND a.person_id = person)
$$;

-- Takes the proposal's row lock, as verdicts do: no thread is opened between check and commit. The
-- rules are those of the engine's gate::discussion.
CREATE OR REPLACE FUNCTION guard_comment() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  s review;
  p proposal;
  who person;
BEGIN
  SELECT * INTO s FROM review WHERE id = NEW.review_id;
  SELECT * INTO p FROM proposal WHERE id = s.proposal_id FOR UPDATE;
  IF p.state <> 'open' THEN
    RAISE EXCEPTION 'Proposal % is %, so its discussion is closed', p.id, p.state
      USING ERRCODE = 'GY005', HINT = 'Open another proposal.';
  END IF;
  IF TG_OP = 'INSERT' THEN
    NEW.at := now();
    IF NEW.resolved_by IS NOT NULL THEN
      RAISE EXCEPTION 'A new comment cannot be resolved' USING ERRCODE = 'GY018';
    END IF;
    IF NEW.thread_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM comment t JOIN review o ON o.id = t.review_id
      WHERE t.id = NEW.thread_id AND t.thread_id IS NULL AND o.proposal_id = p.id) THEN
      RAISE EXCEPTION 'Comment % does not start a thread of proposal %', NEW.thread_id, p.id
        USING ERRCODE = 'GY018';
    END IF;
    SELECT * INTO who FROM person WHERE id = NEW.person_id;
  ELSIF NEW.resolved_by IS NULL THEN
    IF OLD.resolved_by IS NULL OR is_owner() THEN
      RETURN NEW;
    END IF;
    SELECT * INTO who FROM person WHERE id = acting_person();
    IF NOT FOUND OR NOT acting_as_operator() THEN
      RAISE EXCEPTION 'Cannot reopen thread %: the transaction does not act for an operator', OLD.id
        USING ERRCODE = 'GY035', HINT = 'Sign in, or use a token with the operator scope.';
    END IF;
  ELSE
    NEW.resolved_at := now();
    SELECT * INTO who FROM person WHERE id = NEW.resolved_by;
    IF who.id <> OLD.person_id AND (NOT may_review(who, places_of(s.id)) OR is_author(p.id, who.id)) THEN
      RAISE EXCEPTION 'Account % neither started thread % nor may approve the change', who.name,
        OLD.id
        USING ERRCODE = 'GY018',
          HINT =
            'Ask the person who started it, or a reviewer who is not an author, to resolve it.';
    END IF;
  END IF;
  IF who.disabled OR NOT may_in(who, ARRAY['operator', 'reviewer'], ARRAY[p.deployment_id]) THEN
    RAISE EXCEPTION 'Account % may not take part in this discussion', who.name
      USING ERRCODE = 'GY018',
        HINT = 'This requires the operator or reviewer permission in the deployment.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_comment BEFORE INSERT OR UPDATE ON comment FOR EACH ROW EXECUTE FUNCTION guard_comment();

-- Intent ------------------------------------------------------------------------------------------
-- Statement triggers run once per statement, not per row. They fire on the columns that the
-- statement names.

CREATE OR REPLACE FUNCTION guard_intent() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT committing() THEN
    RAISE EXCEPTION 'Table % contains intent, which only a commit can change', TG_TABLE_NAME
      USING ERRCODE = 'GY002', HINT = 'Open a proposal, have it reviewed, and commit it.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE
  OR UPDATE OF id, parent, name, system, phantom, doc, head_no, removed_in ON deployment
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE INSERT ON blueprint_deployment FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE TRUNCATE
  OR UPDATE OF id, fqdn, deployment_id, phantom, doc ON node
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
-- Removed ids never recur. Otherwise approvals and runs of two different things would mix.
CREATE OR REPLACE FUNCTION guard_removed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'Cannot change % %: it was removed by blueprint %', TG_TABLE_NAME, OLD.id,
    OLD.removed_in
    USING ERRCODE = 'GY016', HINT = 'Create it again with a new id.';
END $$;
CREATE TRIGGER guard_removed BEFORE UPDATE OF id, parent, name, system, phantom, doc, removed_in ON deployment FOR EACH ROW
  WHEN (OLD.removed_in IS NOT NULL) EXECUTE FUNCTION guard_removed();
CREATE TRIGGER guard_removed BEFORE UPDATE OF id, fqdn, deployment_id, phantom, doc, removed_in, transport, connection ON node FOR EACH ROW
  WHEN (OLD.removed_in IS NOT NULL) EXECUTE FUNCTION guard_removed();
-- Whether a step exists is intent, although its state is progress.
CREATE OR REPLACE FUNCTION guard_step_gone() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT committing() THEN
    RAISE EXCEPTION 'Only a commit can add or remove step %', OLD.id
      USING ERRCODE = 'GY002', HINT = 'Open a proposal, have it reviewed, and commit it.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_step_gone BEFORE UPDATE OF state ON step FOR EACH ROW
  WHEN ((OLD.state = 'gone') <> (NEW.state = 'gone')) EXECUTE FUNCTION guard_step_gone();
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE OR UPDATE ON edge
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE OR UPDATE ON concurrency_group
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE OR UPDATE ON disruption_budget
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();

CREATE TRIGGER guard_intent BEFORE TRUNCATE OR DELETE OR UPDATE OF name, active ON jig
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();

-- Even in a commit, a document changes only to the version that the review lists.
CREATE OR REPLACE FUNCTION guard_document() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM blueprint t JOIN head h ON h.epoch = t.epoch
    LEFT JOIN review_document d ON d.review_id = t.review_id AND d.kind = TG_TABLE_NAME AND d.id = NEW.id
    WHERE t.xid = pg_current_xact_id() AND (t.kind = 'genesis' OR (d.id IS NOT NULL AND d.new_hash IS NOT DISTINCT FROM NEW.doc))) THEN
    RAISE EXCEPTION 'The document of % % is not listed in the review', TG_TABLE_NAME, NEW.id
      USING ERRCODE = 'GY010';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_document AFTER INSERT ON deployment FOR EACH ROW EXECUTE FUNCTION guard_document();
CREATE TRIGGER guard_document_change AFTER UPDATE OF doc ON deployment FOR EACH ROW
  WHEN (NEW.doc IS DISTINCT FROM OLD.doc AND NEW.removed_in IS NULL) EXECUTE FUNCTION guard_document();
CREATE TRIGGER guard_document AFTER INSERT ON node FOR EACH ROW
  WHEN (NEW.doc IS NOT NULL) EXECUTE FUNCTION guard_document();
CREATE TRIGGER guard_document_change AFTER UPDATE OF doc ON node FOR EACH ROW
  WHEN (NEW.doc IS DISTINCT FROM OLD.doc AND NEW.removed_in IS NULL) EXECUTE FUNCTION guard_document();

-- The risks determine the number of approvals, so a destructive step must be among them.
CREATE OR REPLACE FUNCTION guard_risk() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM blueprint t JOIN head h ON h.epoch = t.epoch LEFT JOIN review s ON s.id = t.review_id
                 WHERE t.xid = pg_current_xact_id() AND (t.kind = 'genesis' OR 'destructive' = ANY (s.risk))) THEN
    RAISE EXCEPTION 'Step % is destructive, but the review does not list that risk', NEW.id
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_risk AFTER INSERT ON step FOR EACH ROW WHEN (NEW.destructive) EXECUTE FUNCTION guard_risk();
-- A removed step does not run.
CREATE TRIGGER guard_risk_again AFTER UPDATE OF generation, destructive ON step FOR EACH ROW
  WHEN (NEW.destructive AND NEW.state <> 'gone'
        AND (NEW.generation, NEW.destructive) IS DISTINCT FROM (OLD.generation, OLD.destructive))
  EXECUTE FUNCTION guard_risk();

-- Whether the commit of this transaction names a risk. Genesis has no review. The function runs for
-- every re-run step, and its own search path would cost 0.1 ms per call. So it qualifies every name
-- instead.
CREATE OR REPLACE FUNCTION names_risk(wanted text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM public.blueprint t JOIN public.head h ON h.epoch OPERATOR(pg_catalog.=) t.epoch
    LEFT JOIN public.review s ON s.id OPERATOR(pg_catalog.=) t.review_id
    WHERE t.xid OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id()
      AND (t.kind OPERATOR(pg_catalog.=) 'genesis' OR wanted OPERATOR(pg_catalog.=) ANY (s.risk)));
END $$;

-- risks_of_documents checks the risks in the documents. The following triggers check the rows, so
-- that no row changes in a way that the documents do not show.

-- A re-run raises the generation. A restored step runs for the first time, and a removed step does
-- not run.
CREATE OR REPLACE FUNCTION guard_rerun() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT public.names_risk('rerun') THEN
    RAISE EXCEPTION 'Step % runs again, but the review does not list that risk', NEW.id
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_rerun AFTER UPDATE OF generation ON step FOR EACH ROW
  WHEN (NEW.generation IS DISTINCT FROM OLD.generation AND OLD.state <> 'gone' AND NEW.state <> 'gone')
  EXECUTE FUNCTION guard_rerun();

CREATE OR REPLACE FUNCTION guard_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT public.names_risk('removal') THEN
    RAISE EXCEPTION 'Cannot remove % %: the review does not list that risk', TG_TABLE_NAME, OLD.id
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_removal AFTER UPDATE OF disposition ON noderole FOR EACH ROW
  WHEN (OLD.disposition = 'in_service' AND NEW.disposition <> 'in_service') EXECUTE FUNCTION guard_removal();
-- A removal step goes when its noderole is bound again, which removes nothing.
CREATE TRIGGER guard_removal AFTER UPDATE OF state ON step FOR EACH ROW
  WHEN (OLD.state <> 'gone' AND NEW.state = 'gone' AND NEW.action = 'run') EXECUTE FUNCTION guard_removal();
CREATE TRIGGER guard_removal AFTER UPDATE OF removed_in ON deployment FOR EACH ROW
  WHEN (OLD.removed_in IS NULL AND NEW.removed_in IS NOT NULL) EXECUTE FUNCTION guard_removal();
-- A bare record is not intent, so its removal needs no commit.
CREATE TRIGGER guard_removal AFTER UPDATE OF removed_in ON node FOR EACH ROW
  WHEN (OLD.doc IS NOT NULL AND OLD.removed_in IS NULL AND NEW.removed_in IS NOT NULL) EXECUTE FUNCTION guard_removal();
-- Gantry never deletes these rows.
CREATE TRIGGER guard_removal_deleted AFTER DELETE ON noderole FOR EACH ROW EXECUTE FUNCTION guard_removal();
CREATE TRIGGER guard_removal_deleted AFTER DELETE ON step FOR EACH ROW EXECUTE FUNCTION guard_removal();
CREATE TRIGGER guard_removal_deleted AFTER DELETE ON deployment FOR EACH ROW EXECUTE FUNCTION guard_removal();
CREATE TRIGGER guard_removal_deleted AFTER DELETE ON node FOR EACH ROW
  WHEN (OLD.doc IS NOT NULL) EXECUTE FUNCTION guard_removal();

-- A node that moves to a descendant of its deployment does not leave it. A node without a document
-- has no intent that could move.
CREATE OR REPLACE FUNCTION guard_move() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (
    WITH RECURSIVE above (id) AS (
      SELECT NEW.deployment_id
      UNION
      SELECT d.parent FROM above a JOIN deployment d ON d.id = a.id WHERE d.parent IS NOT NULL)
    SELECT FROM above WHERE id = OLD.deployment_id) AND NOT names_risk('move') THEN
    RAISE EXCEPTION 'Node % leaves its deployment, but the review does not list that risk', NEW.fqdn
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_move AFTER UPDATE OF deployment_id ON node FOR EACH ROW
  WHEN (OLD.doc IS NOT NULL AND NEW.deployment_id <> OLD.deployment_id) EXECUTE FUNCTION guard_move();

CREATE OR REPLACE FUNCTION guard_deployment_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT public.names_risk('move') THEN
    RAISE EXCEPTION 'Deployment % gets another parent, but the review does not list that risk', NEW.name
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_move AFTER UPDATE OF parent ON deployment FOR EACH ROW
  WHEN (NEW.parent IS DISTINCT FROM OLD.parent) EXECUTE FUNCTION guard_deployment_move();

-- Switching a jig off is a risk too. Only the document of *system* contains it.
CREATE OR REPLACE FUNCTION guard_halt() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF jigs_off(NEW.doc) <@ jigs_off(OLD.doc) OR EXISTS (
    SELECT FROM blueprint t JOIN head h ON h.epoch = t.epoch JOIN review s ON s.id = t.review_id
    WHERE t.xid = pg_current_xact_id() AND 'halt' = ANY (s.risk)) THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'A jig is turned off, but the review does not list that risk'
    USING ERRCODE = 'GY009', HINT = 'Submit the proposal again.';
END $$;
CREATE OR REPLACE FUNCTION jigs_off(doc bytea) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT coalesce(convert_from(o.body, 'UTF8')::jsonb -> 'inactive_jigs', '[]'::jsonb) FROM object o WHERE o.hash = doc
$$;
CREATE TRIGGER guard_halt AFTER UPDATE OF doc ON deployment FOR EACH ROW
  WHEN (NEW.system AND NEW.doc IS DISTINCT FROM OLD.doc) EXECUTE FUNCTION guard_halt();

-- The depth limit of the tree, equal to the planner's plan::MAX_LEVELS, *system* included.
CREATE OR REPLACE FUNCTION guard_levels() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE lowest int;
BEGIN
  -- A cycle of parents ends at the limit too.
  WITH RECURSIVE up (id, n) AS (
    SELECT NEW.parent, 1
    UNION ALL
    SELECT d.parent, up.n + 1 FROM up JOIN deployment d ON d.id = up.id WHERE d.parent IS NOT NULL AND up.n < 16
  ), down (id, n) AS (
    SELECT NEW.id, (SELECT max(up.n) + 1 FROM up)
    UNION ALL
    SELECT d.id, down.n + 1 FROM down JOIN deployment d ON d.parent = down.id
    WHERE d.removed_in IS NULL AND down.n < 17
  ) SELECT max(n) INTO lowest FROM down;
  IF lowest > 16 THEN
    RAISE EXCEPTION 'Below deployment %, the tree would have 17 levels, and the limit is 16', NEW.name
      USING ERRCODE = 'GY021', HINT = 'Choose a parent that is higher in the tree.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_levels AFTER INSERT ON deployment FOR EACH ROW
  WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION guard_levels();
-- A commit writes the parent with every new document, so only a different parent is checked. A tree
-- older than this limit may be deeper, and its deployments stay editable and removable. A commit can
-- move several deployments, so only their final places are checked.
CREATE CONSTRAINT TRIGGER guard_levels_moved AFTER UPDATE OF parent ON deployment
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.parent IS NOT NULL AND NEW.parent IS DISTINCT FROM OLD.parent) EXECUTE FUNCTION guard_levels();

-- Bare node records need no commit: no document, not a phantom, in the system deployment.
CREATE OR REPLACE FUNCTION guard_node() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  n node := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
BEGIN
  IF (n.doc IS NOT NULL OR n.phantom OR n.removed_in IS NOT NULL
      OR NOT EXISTS (SELECT FROM deployment d WHERE d.id = n.deployment_id AND d.system)) AND NOT committing() THEN
    RAISE EXCEPTION
      'Only a commit can add or delete node %, because it is not a bare node in system', n.fqdn
      USING ERRCODE = 'GY002',
        HINT = 'Add it to the system deployment, and move it with a proposal.';
  END IF;
  RETURN n;
END $$;
CREATE TRIGGER guard_node BEFORE INSERT OR DELETE ON node FOR EACH ROW EXECUTE FUNCTION guard_node();

-- A bare record is removed without a commit because no document changes. Its row stays, so that its
-- id never recurs.
CREATE OR REPLACE FUNCTION guard_node_removed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT committing() AND (OLD.doc IS NOT NULL OR OLD.phantom OR NEW.removed_in IS DISTINCT FROM (SELECT number FROM head)) THEN
    RAISE EXCEPTION 'Node % can only be removed by a commit', OLD.fqdn
      USING ERRCODE = 'GY002',
        HINT = 'Open a proposal that removes the node, have it reviewed, and commit it.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_node_removed BEFORE UPDATE OF removed_in ON node FOR EACH ROW
  WHEN (OLD.removed_in IS NULL AND NEW.removed_in IS NOT NULL) EXECUTE FUNCTION guard_node_removed();

-- Local nodes with overlapping folders would share locks, ledgers and services. Concurrent inserts
-- wait for each other because neither sees the other's row.
CREATE OR REPLACE FUNCTION guard_node_root() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  above text[];
  other record;
BEGIN
  PERFORM pg_advisory_xact_lock(5);
  SELECT array_agg(array_to_string(path.parts[1:n], '/')) INTO above
  FROM (SELECT string_to_array(NEW.root, '/') AS parts) path, generate_series(2, cardinality(path.parts)) n;
  SELECT x.fqdn, x.root INTO other FROM node x
  WHERE x.removed_in IS NULL AND x.root IS NOT NULL AND x.id <> NEW.id
    AND (x.root = ANY (above) OR (x.root >= (NEW.root || '/') COLLATE "C" AND x.root < (NEW.root || '0') COLLATE "C"))
  ORDER BY x.root LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION
      'Root folder % overlaps with that of node % (%). Give this node another root folder',
      NEW.root, other.fqdn, other.root
      USING ERRCODE = 'GY020';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_node_root AFTER INSERT OR UPDATE OF transport, connection ON node FOR EACH ROW
  WHEN (NEW.root IS NOT NULL AND NEW.removed_in IS NULL) EXECUTE FUNCTION guard_node_root();

-- With two records of one machine, two exclusive runs could overlap on it. The port distinguishes
-- machines that share an address. Existing duplicates stay until someone changes them. Concurrent
-- inserts wait for each other, as above.
CREATE OR REPLACE FUNCTION guard_node_machine() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
-- With a limit, a search in the GIN indexes may omit rows.
SET gin_fuzzy_search_limit = 0 AS $$
DECLARE
  port text := coalesce(NEW.connection ->> 'port', '22');
  wanted jsonb := lower(NEW.address::text)::jsonb;
  other record;
BEGIN
  IF NEW.transport = 'ssh' AND jsonb_typeof(wanted) = 'array' AND (TG_OP = 'INSERT'
      OR (NEW.address, port) IS DISTINCT FROM (OLD.address, coalesce(OLD.connection ->> 'port', '22'))) THEN
    PERFORM pg_advisory_xact_lock(5);
    SELECT x.fqdn, a.address INTO other
    FROM node x, jsonb_array_elements_text(wanted) WITH ORDINALITY a (address, place)
    WHERE x.removed_in IS NULL AND x.transport = 'ssh' AND x.id <> NEW.id
      AND lower(x.address::text)::jsonb ?| ARRAY(SELECT jsonb_array_elements_text(wanted))
      AND lower(x.address::text)::jsonb ? a.address AND coalesce(x.connection ->> 'port', '22') = port
    ORDER BY a.place, x.fqdn LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION
        'Address % with port % already belongs to node %. Change or remove that node, or use '
        'another address or port',
        other.address, port, other.fqdn USING ERRCODE = 'GY023';
    END IF;
  END IF;
  IF NEW.macs <> '{}' AND (TG_OP = 'INSERT' OR NEW.macs <> OLD.macs) THEN
    PERFORM pg_advisory_xact_lock(5);
    SELECT x.fqdn, a.mac INTO other FROM node x, unnest(NEW.macs) WITH ORDINALITY a (mac, place)
    WHERE x.removed_in IS NULL AND x.macs <> '{}' AND x.id <> NEW.id AND x.macs && NEW.macs AND a.mac = ANY (x.macs)
    ORDER BY a.place, x.fqdn LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION
        'MAC address % already belongs to node %. Change or remove that node, or omit the MAC '
        'address',
        other.mac, other.fqdn USING ERRCODE = 'GY023';
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_node_machine AFTER INSERT OR UPDATE OF transport, address, connection, macs ON node FOR EACH ROW
  WHEN (NEW.removed_in IS NULL) EXECUTE FUNCTION guard_node_machine();

-- Node requirements of a step ---------------------------------------------------------------------

-- step.node_fits: whether node_reasons is empty (admission.sql). These functions run once per row,
-- and their own search path would cost 0.1 ms per call. No approval depends on them.
CREATE OR REPLACE FUNCTION step_meets_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT public.node_fits(NEW.needs, n.phantom, n.removed_in, n.available, n.alive, n.joined) INTO NEW.node_fits
  FROM public.node n WHERE n.id = NEW.node_id;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_node_fits BEFORE INSERT OR UPDATE OF needs, node_id, node_fits ON step
  FOR EACH ROW EXECUTE FUNCTION step_meets_node();

CREATE OR REPLACE FUNCTION node_tells_steps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM public.step s WHERE s.node_id = NEW.id
    AND s.node_fits <> public.node_fits(s.needs, NEW.phantom, NEW.removed_in, NEW.available, NEW.alive, NEW.joined)
    ORDER BY s.rank, s.id FOR UPDATE;
  UPDATE public.step s
  SET node_fits = public.node_fits(s.needs, NEW.phantom, NEW.removed_in, NEW.available, NEW.alive, NEW.joined)
  WHERE s.node_id = NEW.id
    AND s.node_fits <> public.node_fits(s.needs, NEW.phantom, NEW.removed_in, NEW.available, NEW.alive, NEW.joined);
  RETURN NULL;
END $$;
CREATE TRIGGER guard_node_tells_steps AFTER UPDATE OF alive, available, joined, phantom, removed_in, transport, address, connection, connection_no ON node FOR EACH ROW
  WHEN ((NEW.alive, NEW.available, NEW.joined, NEW.phantom, NEW.removed_in)
        IS DISTINCT FROM (OLD.alive, OLD.available, OLD.joined, OLD.phantom, OLD.removed_in))
  EXECUTE FUNCTION node_tells_steps();

-- Runs, tokens ------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION guard_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'The identity of a run can never change' USING ERRCODE = 'GY015',
    HINT = 'End the run. The next claim creates another one.';
END $$;
CREATE TRIGGER guard_run BEFORE DELETE OR TRUNCATE
  OR UPDATE OF id, step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, queued_at, cause, cause_by, failures ON run
  FOR EACH STATEMENT EXECUTE FUNCTION guard_run();

CREATE OR REPLACE FUNCTION guard_run_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state <> 'ended' OR NEW.ended_at <> OLD.ended_at THEN
    RAISE EXCEPTION 'Run % has ended and can no longer change', OLD.id USING ERRCODE = 'GY016';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_run_ended BEFORE UPDATE ON run FOR EACH ROW WHEN (OLD.state = 'ended') EXECUTE FUNCTION guard_run_ended();

CREATE OR REPLACE FUNCTION guard_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.used_at IS NOT NULL AND NEW.used_at IS DISTINCT FROM OLD.used_at)
     OR (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NULL) THEN
    RAISE EXCEPTION 'This token was already used or revoked' USING ERRCODE = 'GY016',
      HINT = 'Create another one.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_token BEFORE UPDATE ON token FOR EACH ROW EXECUTE FUNCTION guard_token();

-- Housekeeping ------------------------------------------------------------------------------------

-- Creates log partitions ahead of the newest run: two, of 131,072 runs each. The reaper calls it.
-- Rows that arrive before their partition stay in the default partition, and so does their range.
CREATE OR REPLACE FUNCTION ensure_run_log_room() RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  width constant bigint := 131072;
  first bigint;
  made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(4);
  SELECT coalesce(max(id), 0) / width INTO first FROM run;
  FOR part IN first .. first + 2 LOOP
    CONTINUE WHEN to_regclass(format('public.run_log_%s', part)) IS NOT NULL;
    CONTINUE WHEN EXISTS (SELECT FROM run_log_rest r WHERE r.run_id >= part * width AND r.run_id < (part + 1) * width);
    EXECUTE format('CREATE TABLE public.run_log_%s PARTITION OF public.run_log FOR VALUES FROM (%s) TO (%s)',
                   part, part * width, (part + 1) * width);
    made := made + 1;
  END LOOP;
  RETURN made;
END $$;
SELECT ensure_run_log_room();

-- Deletes older events. At least one day remains for clients that resume a stream.
CREATE OR REPLACE FUNCTION forget_events(older_than interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE gone bigint;
BEGIN
  WITH old AS (DELETE FROM event WHERE at < now() - greatest(older_than, interval '1 day') RETURNING xid, id),
       last AS (SELECT xid, id FROM old ORDER BY xid DESC, id DESC LIMIT 1),
       noted AS (UPDATE event_horizon f SET xid = last.xid, id = last.id FROM last WHERE (last.xid, last.id) > (f.xid, f.id))
  SELECT count(*) INTO gone FROM old;
  RETURN gone;
END $$;

-- Called after a restore. Only the owner may call it.
CREATE OR REPLACE FUNCTION raise_epoch() RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE head SET epoch = epoch + 1 RETURNING epoch
$$;
