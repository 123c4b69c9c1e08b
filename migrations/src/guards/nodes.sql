-- Node records and their documents ----------------------------------------------------------------
-- A connection decides on which machine an approved step runs, and hints are input of its roles.
-- Once a node has a document, both come from the document, and the row repeats them.

-- The connection in a row, in the form of a document (engine::cluster::Connection). NULL: the node
-- has no connection.
CREATE OR REPLACE FUNCTION node_connection(transport text, address jsonb, connection jsonb)
RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT CASE transport
    WHEN 'ssh' THEN jsonb_build_object(
      'transport', 'ssh', 'addresses', address, 'port', coalesce(connection -> 'port', '22'),
        'user', connection -> 'user',
      'key', connection -> 'key', 'host_key', connection -> 'host_key', 'root',
        coalesce(connection -> 'root', '"/"'))
    WHEN 'local' THEN jsonb_build_object('transport', 'local', 'root', connection -> 'root') END
$$;

-- Whether a row matches its document.
CREATE OR REPLACE FUNCTION node_matches(n node, doc jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT doc -> 'connection' IS NOT DISTINCT FROM node_connection(n.transport, n.address,
      n.connection)
    AND coalesce(doc -> 'hints', '{}') = n.hints
$$;

-- Nodes that get their first document from a review and whose record changed since it was planned.
CREATE OR REPLACE FUNCTION moved_records(review bigint) RETURNS TABLE (fqdn text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
  SELECT n.fqdn FROM review_document d JOIN node n ON n.id = d.id AND n.doc IS NULL
    AND n.removed_in IS NULL AND NOT n.phantom
  WHERE d.review_id = review AND d.kind = 'node' AND d.old_hash IS NULL
    AND NOT node_matches(n, (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o
      WHERE o.hash = d.new_hash))
$$;

-- Whether a deployment of a review's base, a document that it replaces, or the record of a node
-- that gets its first document has changed.
CREATE OR REPLACE FUNCTION is_outdated(review bigint) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off AS $$
  SELECT EXISTS (SELECT FROM moved_base(review))
    OR EXISTS (
      SELECT FROM review_document x
      LEFT JOIN deployment d ON x.kind = 'deployment' AND d.id = x.id AND d.removed_in IS NULL
      LEFT JOIN node n ON x.kind = 'node' AND n.id = x.id AND n.removed_in IS NULL
      WHERE x.review_id = review AND coalesce(d.doc, n.doc) IS DISTINCT FROM x.old_hash)
    OR EXISTS (SELECT FROM moved_records(review))
$$;

CREATE OR REPLACE FUNCTION guard_node_record() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  changed boolean := TG_OP = 'UPDATE' AND (OLD.transport, OLD.address, OLD.connection, OLD.hints)
    IS DISTINCT FROM (NEW.transport, NEW.address, NEW.connection, NEW.hints);
  doc jsonb;
  n node := NEW;
BEGIN
  IF TG_OP = 'UPDATE' AND NOT changed AND NEW.doc IS NOT DISTINCT FROM OLD.doc THEN
    RETURN NEW;
  END IF;
  IF changed AND NOT committing() THEN
    RAISE EXCEPTION
      'Node % is in a blueprint, so only a commit can change its connection and hints', NEW.fqdn
      USING ERRCODE = 'GY030',
        HINT = 'Open a proposal with the change, have it reviewed, and commit it.';
  END IF;
  doc := (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = NEW.doc);
  IF doc IS NULL OR NOT node_matches(n, doc) OR changed AND NOT doc ? 'connection' THEN
    RAISE EXCEPTION 'The connection or hints of node % differ from its document', NEW.fqdn
      USING ERRCODE = 'GY031',
        HINT =
          'The record changed after the review. Submit the proposal again to get new approvals.';
  END IF;
  -- An open run was claimed with the previous document.
  IF changed AND (node_connection(OLD.transport, OLD.address, OLD.connection), OLD.hints)
                 IS DISTINCT FROM (node_connection(NEW.transport, NEW.address, NEW.connection),
                   NEW.hints)
     AND EXISTS (SELECT FROM run r WHERE r.node_id = NEW.id AND r.ended_at IS NULL) THEN
    RAISE EXCEPTION 'Node % has an open run, so its connection and hints cannot change now',
      NEW.fqdn
      USING ERRCODE = 'GY032',
        HINT =
          'Put the node in maintenance, cancel its runs or wait until they end, then commit again.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_node_record BEFORE INSERT OR UPDATE OF transport, address, connection, hints,
  doc ON node FOR EACH ROW
  WHEN (NEW.doc IS NOT NULL AND NOT NEW.phantom AND NEW.removed_in IS NULL)
    EXECUTE FUNCTION guard_node_record();

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
  addresses jsonb := lower(NEW.address::text)::jsonb;
  other record;
BEGIN
  IF NEW.transport = 'ssh' AND jsonb_typeof(addresses) = 'array' AND (TG_OP = 'INSERT'
      OR (NEW.address, port) IS DISTINCT FROM (OLD.address, coalesce(OLD.connection ->> 'port', '22'))) THEN
    PERFORM pg_advisory_xact_lock(5);
    SELECT x.fqdn, a.address INTO other
    FROM node x, jsonb_array_elements_text(addresses) WITH ORDINALITY a (address, position)
    WHERE x.removed_in IS NULL AND x.transport = 'ssh' AND x.id <> NEW.id
      AND lower(x.address::text)::jsonb ?| ARRAY(SELECT jsonb_array_elements_text(addresses))
      AND lower(x.address::text)::jsonb ? a.address AND coalesce(x.connection ->> 'port', '22') = port
    ORDER BY a.position, x.fqdn LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION
        'Address % with port % already belongs to node %. Change or remove that node, or use '
        'another address or port',
        other.address, port, other.fqdn USING ERRCODE = 'GY023';
    END IF;
  END IF;
  IF NEW.macs <> '{}' AND (TG_OP = 'INSERT' OR NEW.macs <> OLD.macs) THEN
    PERFORM pg_advisory_xact_lock(5);
    SELECT x.fqdn, a.mac INTO other FROM node x, unnest(NEW.macs) WITH ORDINALITY a (mac, position)
    WHERE x.removed_in IS NULL AND x.macs <> '{}' AND x.id <> NEW.id AND x.macs && NEW.macs AND a.mac = ANY (x.macs)
    ORDER BY a.position, x.fqdn LIMIT 1;
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
