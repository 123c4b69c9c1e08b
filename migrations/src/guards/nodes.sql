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
