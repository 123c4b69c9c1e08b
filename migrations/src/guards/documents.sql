-- Documents of a blueprint and a review ----------------------------------------------------------

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
  found_at int;
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
    found_at := CASE d.kind WHEN 'node' THEN position(d.was IN substring(written FROM nodes))
                         ELSE position(d.was IN substring(written FROM 1 FOR nodes)) END;
    IF found_at = 0 THEN
      RETURN false;
    END IF;
    written := overlay(written PLACING d.is_now FROM CASE d.kind WHEN 'node' THEN nodes - 1 ELSE 0 END + found_at);
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
-- impact::risks. Step flags and jigs are not in documents (see guard_risk, guard_halt). The
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
  changed_data AS MATERIALIZED (
    SELECT doc.id AS deployment_id, o.key AS role FROM doc CROSS JOIN LATERAL jsonb_each(doc.was -> 'roles') o
    WHERE doc.kind = 'deployment' AND doc.is_now -> 'roles' ? o.key
      AND doc.is_now -> 'roles' -> o.key -> 'data' IS DISTINCT FROM o.value -> 'data'),
  noderole_docs AS MATERIALIZED (
    SELECT r.key, r.was, r.is_now FROM doc CROSS JOIN LATERAL (
      SELECT key, o.value AS was, n.value AS is_now FROM jsonb_each(coalesce(doc.was -> 'noderoles', '{}')) o
      FULL JOIN jsonb_each(coalesce(doc.is_now -> 'noderoles', '{}')) n USING (key)) r
    WHERE doc.kind = 'node'),
  -- Templates of the roles that reference a secret.
  template AS MATERIALIZED (
    SELECT b.role, b.body::jsonb -> 'template' AS template FROM (
      SELECT x.role, (SELECT convert_from(o.body, 'UTF8') FROM object o WHERE o.hash = decode(x.role, 'hex')) AS body
      FROM (SELECT c.is_now ->> 'role' AS role FROM noderole_docs c UNION SELECT c.was ->> 'role' FROM noderole_docs c) x) b
    WHERE names_secret(b.body) AND jsonb_typeof(b.body::jsonb -> 'template') = 'object'),
  roles_with_changes AS (
    SELECT c.is_now ->> 'role' AS role FROM noderole_docs c
    WHERE c.was IS NOT NULL AND c.is_now IS NOT NULL
      AND (c.was -> 'role' IS DISTINCT FROM c.is_now -> 'role' OR c.was -> 'data' IS DISTINCT FROM c.is_now -> 'data'
           OR c.was -> 'deployment' = c.is_now -> 'deployment' AND EXISTS (
             SELECT FROM changed_data t WHERE t.deployment_id = (c.is_now ->> 'deployment')::uuid AND t.role = split_part(c.key, '/', 1)))
    UNION
    -- Nodes whose own documents stay unchanged.
    SELECT DISTINCT encode(r.role_hash, 'hex') FROM changed_data t
    JOIN noderole r ON r.deployment_id = t.deployment_id AND r.role = t.role AND r.disposition = 'in_service'
    WHERE NOT EXISTS (SELECT FROM doc WHERE doc.kind = 'node' AND doc.id = r.node_id))
  SELECT 'removal' WHERE EXISTS (SELECT FROM doc WHERE old_hash IS NOT NULL AND new_hash IS NULL)
                      OR EXISTS (SELECT FROM noderole_docs WHERE is_now IS NULL)
  UNION ALL
  SELECT 'connection' WHERE EXISTS (
    SELECT FROM doc WHERE kind = 'node' AND was IS NOT NULL AND is_now IS NOT NULL
      AND was -> 'connection' IS DISTINCT FROM is_now -> 'connection')
  UNION ALL
  SELECT 'move' WHERE EXISTS (
      SELECT FROM moved m WHERE NOT EXISTS (SELECT FROM above a WHERE a.id = m.origin AND a.goal = m.goal))
    -- Permissions and signature rules follow from the ancestors of a deployment, so every move
    -- counts.
    OR EXISTS (
      SELECT FROM doc WHERE kind = 'deployment' AND was IS NOT NULL AND is_now IS NOT NULL
        AND was ->> 'parent' IS DISTINCT FROM is_now ->> 'parent')
  UNION ALL
  SELECT 'rerun' WHERE EXISTS (
      SELECT FROM noderole_docs c WHERE c.was IS NOT NULL AND c.is_now IS NOT NULL
        AND coalesce(c.was ->> 'reruns', '0') <> coalesce(c.is_now ->> 'reruns', '0'))
    -- A role may declare that changed content and data do not cause a re-run.
    OR EXISTS (
      -- Lookup by key. As a join, the planner applied the test to bodies that are not JSON.
      SELECT FROM roles_with_changes t WHERE (
        SELECT convert_from(o.body, 'UTF8')::jsonb #>> '{run,on_change}' FROM object o WHERE o.hash = decode(t.role, 'hex'))
        IS DISTINCT FROM 'keep')
  UNION ALL
  SELECT 'secret' WHERE adds_secret(review) OR EXISTS (
    SELECT FROM noderole_docs c JOIN template t ON t.role = c.is_now ->> 'role'
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
