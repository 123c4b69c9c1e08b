-- The secrets that a review's documents reference.
--
-- The engine's blueprint::secret_uses finds every use that a change adds, also through other
-- noderoles. The database finds only the plain cases, from the documents alone: a new reference in
-- the data (adds_secret), or in the template of a role that a noderole gets (risks_of_documents).
-- It never finds one that the engine does not.

-- The secret references in a document's data.
CREATE OR REPLACE FUNCTION secret_references(data jsonb) RETURNS SETOF jsonb
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r FROM jsonb_path_query(data,
    'strict $.** ? (@.type() == "object" && exists (@."$secret"))', '{}', true) r
$$;

-- Whether the text of an object may contain a reference. An escape sequence may spell the same key.
CREATE OR REPLACE FUNCTION names_secret(body text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT position('$secret' IN body) > 0 OR position(E'\\u' IN body) > 0
$$;

-- The document of a deployment in force.
CREATE OR REPLACE FUNCTION deployment_body(deployment uuid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off
SET jit = off AS $$
  SELECT convert_from(o.body, 'UTF8')::jsonb FROM deployment d JOIN object o ON o.hash = d.doc
  WHERE d.id = deployment_body.deployment
$$;

-- Whether a review's documents add or replace a reference to a secret.
CREATE OR REPLACE FUNCTION adds_secret(review bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  WITH doc AS MATERIALIZED (
    SELECT CASE d.kind WHEN 'deployment' THEN 'roles' ELSE 'noderoles' END AS part, d.old_hash,
           (SELECT convert_from(o.body, 'UTF8') FROM object o WHERE o.hash = d.new_hash) AS body
    FROM review_document d
    WHERE d.review_id = review),
  naming AS MATERIALIZED (
    SELECT doc.part, doc.body::jsonb AS is_now,
           (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o
             WHERE o.hash = doc.old_hash) AS was
    FROM doc WHERE names_secret(doc.body))
  SELECT EXISTS (
    SELECT FROM naming n CROSS JOIN LATERAL jsonb_each(n.is_now -> n.part) e
    CROSS JOIN LATERAL secret_references(e.value -> 'data') r
    WHERE r NOT IN (SELECT secret_references(n.was -> n.part -> e.key -> 'data')))
$$;
