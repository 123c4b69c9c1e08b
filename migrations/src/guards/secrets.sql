-- The secrets that a review's documents reference.
--
-- The engine's blueprint::secret_uses finds every use that a change adds, also through roles and
-- other noderoles. This file finds only the plain case, from the documents alone: a new reference
-- in the data. It never finds one that the engine does not.

-- The secret references in a document's data.
CREATE OR REPLACE FUNCTION secret_references(data jsonb) RETURNS SETOF jsonb
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r FROM jsonb_path_query(data,
    'strict $.** ? (@.type() == "object" && exists (@."$secret"))', '{}', true) r
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
    -- An escape sequence may spell the same key.
    FROM doc WHERE position('$secret' IN doc.body) > 0 OR position('\u' IN doc.body) > 0)
  SELECT EXISTS (
    SELECT FROM naming n CROSS JOIN LATERAL jsonb_each(n.is_now -> n.part) e
    CROSS JOIN LATERAL secret_references(e.value -> 'data') r
    WHERE r NOT IN (SELECT secret_references(n.was -> n.part -> e.key -> 'data')))
$$;
