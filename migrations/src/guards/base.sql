-- The base of a review ----------------------------------------------------------------------------
-- A review names the blueprint that each deployment of its base had when it was planned. A later
-- commit there voids the review, with one exception: a commit in an ancestor voids it only if it
-- changed something that the review reads there.
--
-- Nothing is stored for this. Both sides follow from immutable rows: the documents of the review,
-- and those of the commits since its base. So no client can understate what a review reads, and the
-- signed base stays as the approvers saw it.
--
-- engine::plan::reads has the same rules for the property test. The commit of the server also plans
-- the edits again and requires the same documents, effects and risks.

-- The deployment of a review and its ancestors. A proposal on a node belongs to the deployment of
-- the node.
CREATE OR REPLACE FUNCTION review_lineage(review bigint)
RETURNS TABLE (deployment_id uuid, is_own boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  WITH RECURSIVE own AS (
    SELECT coalesce((SELECT n.deployment_id FROM node n WHERE n.id = p.node_id), p.deployment_id)
      AS id
    FROM review s JOIN proposal p ON p.id = s.proposal_id WHERE s.id = review),
  above AS (
    SELECT d.parent AS id FROM own JOIN deployment d ON d.id = own.id WHERE d.parent IS NOT NULL
    UNION
    SELECT d.parent FROM above a JOIN deployment d ON d.id = a.id WHERE d.parent IS NOT NULL)
  SELECT id, true FROM own
  UNION ALL
  SELECT id, false FROM above
$$;

-- What a review reads in the ancestors of its deployment:
-- - noderoles: those that its own ones wait for, over any number of edges
-- - nodes: the nodes of these
-- - own: the names that its roles have or provide
-- - names: these, the names that its roles require or precede, and the roles of noderoles above
-- - wants: the attributes that its roles want
-- - barclamps, jigs: of all these roles
-- - wide: it reads more than this, so every commit in its base voids it. It changes the policy, or
--   the place, the versions or the jigs of a deployment. Or the content of a role is missing.
--
-- Its own noderoles are those on nodes whose documents it changes, and those of deployment roles
-- that it changes.
CREATE OR REPLACE FUNCTION review_reads(review bigint) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  WITH RECURSIVE doc AS MATERIALIZED (
    SELECT d.kind, d.id,
      (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.old_hash) AS was,
      (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.new_hash) AS is_now
    FROM review_document d WHERE d.review_id = review),
  noderole_docs AS MATERIALIZED (
    SELECT n.value AS noderole FROM doc CROSS JOIN LATERAL (
      SELECT value FROM jsonb_each(coalesce(doc.was -> 'noderoles', '{}'))
      UNION
      SELECT value FROM jsonb_each(coalesce(doc.is_now -> 'noderoles', '{}'))) n
    WHERE doc.kind = 'node'),
  changed_roles AS MATERIALIZED (
    SELECT doc.id AS deployment_id, r.key AS role, r.was, r.is_now
    FROM doc CROSS JOIN LATERAL (
      SELECT key, o.value ->> 'role' AS was, n.value ->> 'role' AS is_now
      FROM jsonb_each(coalesce(doc.was -> 'roles', '{}')) o
      FULL JOIN jsonb_each(coalesce(doc.is_now -> 'roles', '{}')) n USING (key)
      WHERE o.value IS DISTINCT FROM n.value) r
    WHERE doc.kind = 'deployment'),
  bound AS MATERIALIZED (
    SELECT r.id, r.role_hash FROM changed_roles t
    JOIN noderole r ON r.deployment_id = t.deployment_id AND r.role = t.role
    WHERE r.disposition = 'in_service'),
  above AS (
    SELECT (e.value ->> 'parent')::uuid AS id
    FROM noderole_docs c CROSS JOIN LATERAL jsonb_array_elements(c.noderole -> 'parents') e
    UNION
    SELECT id FROM bound
    UNION
    SELECT p.noderole_id FROM above a JOIN step c ON c.noderole_id = a.id AND c.action <> 'remove'
    JOIN edge e ON e.child = c.id JOIN step p ON p.id = e.parent),
  content AS MATERIALIZED (
    SELECT h.is_own,
      (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = h.hash) AS role
    FROM (
      SELECT x.hash, bool_or(x.is_own) AS is_own FROM (
        SELECT decode(c.noderole ->> 'role', 'hex') AS hash, true AS is_own FROM noderole_docs c
        UNION SELECT decode(t.was, 'hex'), true FROM changed_roles t WHERE t.was IS NOT NULL
        UNION SELECT decode(t.is_now, 'hex'), true FROM changed_roles t WHERE t.is_now IS NOT NULL
        UNION SELECT b.role_hash, true FROM bound b
        UNION SELECT r.role_hash, false FROM above a JOIN noderole r ON r.id = a.id) x
      GROUP BY x.hash) h),
  own AS MATERIALIZED (
    SELECT c.role ->> 'name' AS name FROM content c WHERE c.is_own
    UNION
    SELECT jsonb_array_elements_text(c.role -> 'provides') FROM content c WHERE c.is_own),
  named AS (
    SELECT name FROM own
    UNION SELECT c.role ->> 'name' FROM content c
    UNION SELECT jsonb_array_elements_text(c.role -> 'requires') FROM content c WHERE c.is_own
    UNION SELECT jsonb_array_elements_text(c.role -> 'preceeds') FROM content c WHERE c.is_own)
  SELECT jsonb_build_object(
    'wide', EXISTS (SELECT FROM review s WHERE s.id = review AND s.new_policy_hash IS NOT NULL)
      OR EXISTS (SELECT FROM doc WHERE doc.kind = 'deployment'
                 AND doc.was - 'roles' IS DISTINCT FROM doc.is_now - 'roles')
      OR EXISTS (SELECT FROM content c WHERE c.role IS NULL),
    'noderoles', (SELECT coalesce(jsonb_agg(a.id), '[]') FROM above a),
    'nodes', (SELECT coalesce(jsonb_agg(DISTINCT r.node_id), '[]')
              FROM above a JOIN noderole r ON r.id = a.id),
    'own', (SELECT coalesce(jsonb_agg(name), '[]') FROM own),
    'names', (SELECT coalesce(jsonb_agg(name), '[]') FROM named),
    'wants', (SELECT coalesce(jsonb_agg(DISTINCT w.value), '[]')
              FROM content c CROSS JOIN LATERAL jsonb_array_elements(c.role -> 'wants') w
              WHERE c.is_own),
    'barclamps', (SELECT coalesce(jsonb_agg(DISTINCT c.role -> 'barclamp'), '[]') FROM content c),
    'jigs', (SELECT coalesce(jsonb_agg(DISTINCT c.role -> 'jig'), '[]') FROM content c))
$$;

CREATE OR REPLACE FUNCTION has_any(list jsonb, of_list jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT coalesce(list ?| ARRAY(SELECT jsonb_array_elements_text(of_list)), false)
$$;

-- Whether a review reads a role: the role answers to a name, precedes one of the review's roles, or
-- owns a wanted attribute. True if the role is missing.
CREATE OR REPLACE FUNCTION is_read(role text, reads jsonb) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  SELECT coalesce((
    SELECT reads -> 'names' ? (r.body ->> 'name')
      OR has_any(r.body -> 'provides', reads -> 'names')
      OR has_any(r.body -> 'preceeds', reads -> 'own')
      OR EXISTS (SELECT FROM jsonb_array_elements(r.body -> 'attribs') a
                 WHERE reads -> 'wants' ? (a.value ->> 'name'))
    FROM (SELECT convert_from(o.body, 'UTF8')::jsonb AS body FROM object o
          WHERE o.hash = decode(role, 'hex')) r), true)
$$;

-- Whether two versions of a barclamp differ in something that a review reads: a role, or the client
-- role of a jig.
-- NULL: no version.
CREATE OR REPLACE FUNCTION versions_differ(was text, is_now text, reads jsonb) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  WITH version AS MATERIALIZED (SELECT
    (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = decode(was, 'hex'))
      AS was,
    (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = decode(is_now, 'hex'))
      AS is_now)
  SELECT EXISTS (
      SELECT FROM version v CROSS JOIN LATERAL (
        SELECT o.value AS was, n.value AS is_now FROM jsonb_each_text(v.was -> 'roles') o
        FULL JOIN jsonb_each_text(v.is_now -> 'roles') n USING (key)
        WHERE o.value IS DISTINCT FROM n.value) r
      CROSS JOIN LATERAL (VALUES (r.was), (r.is_now)) c (hash)
      WHERE c.hash IS NOT NULL AND is_read(c.hash, reads))
    OR EXISTS (
      SELECT FROM version v CROSS JOIN LATERAL (
        SELECT key, o.value AS was, n.value AS is_now FROM jsonb_each(v.was -> 'jigs') o
        FULL JOIN jsonb_each(v.is_now -> 'jigs') n USING (key)) j
      WHERE reads -> 'jigs' ? j.key AND (j.was IS NULL OR j.is_now IS NULL
        OR j.was -> 'client_role' IS DISTINCT FROM j.is_now -> 'client_role'))
$$;

-- Whether the documents of a committed review change something in a deployment that another review
-- reads.
CREATE OR REPLACE FUNCTION changes_reads(committed bigint, deployment uuid, reads jsonb)
RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  WITH doc AS MATERIALIZED (
    SELECT d.kind, d.id,
      (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.old_hash) AS was,
      (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = d.new_hash) AS is_now
    FROM review_document d WHERE d.review_id = committed
      AND (d.kind = 'node' OR d.id = deployment))
  SELECT EXISTS (
      SELECT FROM doc WHERE doc.kind = 'deployment' AND (
        doc.was - ARRAY['barclamps', 'roles', 'inactive_jigs']
          IS DISTINCT FROM doc.is_now - ARRAY['barclamps', 'roles', 'inactive_jigs']
        OR EXISTS (
          SELECT FROM jsonb_each(doc.was -> 'roles') o
          FULL JOIN jsonb_each(doc.is_now -> 'roles') n USING (key)
          WHERE o.value IS DISTINCT FROM n.value AND (reads -> 'names' ? key
            OR o.value IS NOT NULL AND is_read(o.value ->> 'role', reads)
            OR n.value IS NOT NULL AND is_read(n.value ->> 'role', reads)))
        OR EXISTS (
          SELECT FROM jsonb_array_elements_text(reads -> 'jigs') j
          WHERE coalesce(doc.was -> 'inactive_jigs' ? j.value, false)
            <> coalesce(doc.is_now -> 'inactive_jigs' ? j.value, false))
        OR EXISTS (
          SELECT FROM jsonb_each_text(doc.was -> 'barclamps') o
          FULL JOIN jsonb_each_text(doc.is_now -> 'barclamps') n USING (key)
          WHERE o.value IS DISTINCT FROM n.value
            AND (reads -> 'barclamps' ? key OR versions_differ(o.value, n.value, reads)))))
    OR EXISTS (
      SELECT FROM doc WHERE doc.kind = 'node' AND reads -> 'nodes' ? doc.id::text
        AND doc.was - 'noderoles' IS DISTINCT FROM doc.is_now - 'noderoles')
    OR EXISTS (
      SELECT FROM doc CROSS JOIN LATERAL (
        SELECT key, o.value AS was, n.value AS is_now
        FROM jsonb_each(coalesce(doc.was -> 'noderoles', '{}')) o
        FULL JOIN jsonb_each(coalesce(doc.is_now -> 'noderoles', '{}')) n USING (key)
        WHERE o.value IS DISTINCT FROM n.value) r
      WHERE doc.kind = 'node'
        AND deployment::text IN (coalesce(r.was ->> 'deployment', ''),
          coalesce(r.is_now ->> 'deployment', ''))
        AND (coalesce(reads -> 'noderoles' ? (
            SELECT x.id::text FROM noderole x WHERE x.node_id = doc.id
              AND x.role = split_part(r.key, '/', 1)
              AND x.instance = coalesce(nullif(split_part(r.key, '/', 2), ''), '0')::int), true)
          OR r.was IS NOT NULL AND is_read(r.was ->> 'role', reads)
          OR r.is_now IS NOT NULL AND is_read(r.is_now ->> 'role', reads)))
$$;

-- Whether a deployment has changed since this blueprint in a way that voids the review. Once true,
-- it stays true, because commits only accumulate.
--
-- Lists and sweeps ask this for all open reviews, so its cost is limited. Every commit voids a
-- review of more than 200 documents, or one that is older than 200 changed documents of an
-- ancestor.
CREATE OR REPLACE FUNCTION base_moved(review bigint, deployment uuid, since bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  most CONSTANT int := 200;
  current_no bigint;
  reads jsonb;
BEGIN
  SELECT d.head_no INTO current_no FROM deployment d
  WHERE d.id = base_moved.deployment AND d.removed_in IS NULL;
  IF current_no = since THEN
    RETURN false;
  END IF;
  IF current_no IS NULL OR current_no < since
     OR NOT EXISTS (SELECT FROM review_lineage(review) l
                    WHERE l.deployment_id = base_moved.deployment AND NOT l.is_own)
     OR EXISTS (SELECT FROM written_by(review) w WHERE w.deployment_id = base_moved.deployment) THEN
    RETURN true;
  END IF;
  -- The history is complete up to the current number.
  IF (SELECT max(t.blueprint_number) FROM blueprint_deployment t
      WHERE t.deployment_id = base_moved.deployment) IS DISTINCT FROM current_no
     OR (SELECT count(*) > most FROM (
           SELECT FROM blueprint_deployment t JOIN blueprint b ON b.number = t.blueprint_number
           JOIN review_document d ON d.review_id = b.review_id
           WHERE t.deployment_id = base_moved.deployment AND t.blueprint_number > since
           LIMIT most + 1) x)
     OR (SELECT count(*) > most FROM (
           SELECT FROM review_document d WHERE d.review_id = base_moved.review LIMIT most + 1) x) THEN
    RETURN true;
  END IF;
  reads := review_reads(review);
  RETURN (reads -> 'wide')::boolean OR EXISTS (
    SELECT FROM blueprint_deployment t JOIN blueprint b ON b.number = t.blueprint_number
    WHERE t.deployment_id = base_moved.deployment AND t.blueprint_number > since
      AND (b.review_id IS NULL OR changes_reads(b.review_id, base_moved.deployment, reads)));
END $$;

-- The deployments of a review's base that have changed in a way that voids it, each with the
-- blueprint that last changed it.
CREATE OR REPLACE FUNCTION moved_base(review bigint)
RETURNS TABLE (deployment_id uuid, name text, head_no bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  SELECT b.deployment_id, coalesce(d.name, b.deployment_id::text), coalesce(d.head_no, 0)
  FROM review_base b LEFT JOIN deployment d ON d.id = b.deployment_id
  WHERE b.review_id = review AND d.head_no IS DISTINCT FROM b.head_no
    AND base_moved(b.review_id, b.deployment_id, b.head_no)
$$;

-- A number from the future would hide the commits up to it.
CREATE OR REPLACE FUNCTION guard_review_base() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE current_no bigint := (SELECT d.head_no FROM deployment d WHERE d.id = NEW.deployment_id);
BEGIN
  IF NEW.head_no > current_no THEN
    RAISE EXCEPTION 'Review % names blueprint % as the base of deployment %, which is at %',
      NEW.review_id, NEW.head_no, NEW.deployment_id, current_no
      USING ERRCODE = 'GY009', HINT = 'Submit the proposal again.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_review_base BEFORE INSERT ON review_base
  FOR EACH ROW EXECUTE FUNCTION guard_review_base();

