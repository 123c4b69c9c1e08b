-- The state of nodes and steps after the server changes intent.
--
-- Only workers may write a node's health, a step's output and a run's result. But a commit, a
-- removal and a new connection change them too. The database derives these changes here, so the
-- server needs no privilege on the columns.

-- A phantom node and a local node need no health check: they are alive from the start.
CREATE OR REPLACE FUNCTION node_starts() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  NEW.alive := true;
  NEW.joined := 'confirmed';
  IF NOT NEW.phantom THEN
    NEW.alive_since := now();
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_node_starts BEFORE INSERT ON node FOR EACH ROW
  WHEN (NEW.phantom OR NEW.transport = 'local') EXECUTE FUNCTION node_starts();

-- A removed node is not alive, and nothing is known about it. A node with a new connection needs a
-- health check before a step starts there.
CREATE OR REPLACE FUNCTION node_is_unknown() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  NEW.joined := 'none';
  IF NEW.removed_in IS NOT NULL THEN
    NEW.alive := false;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_node_unknown BEFORE UPDATE OF removed_in ON node FOR EACH ROW
  WHEN (OLD.removed_in IS NULL AND NEW.removed_in IS NOT NULL AND NOT NEW.phantom)
    EXECUTE FUNCTION node_is_unknown();
CREATE TRIGGER guard_node_unknown_connection BEFORE UPDATE OF transport, address, connection,
  connection_no ON node FOR EACH ROW
  WHEN (NEW.transport = 'ssh' AND (NEW.transport, NEW.address, NEW.connection, NEW.connection_no)
        IS DISTINCT FROM (OLD.transport, OLD.address, OLD.connection, OLD.connection_no))
          EXECUTE FUNCTION node_is_unknown();

-- Results exist as long as their node. The function runs as the owner, because the server may not
-- write results.
CREATE OR REPLACE FUNCTION forget_results() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  UPDATE run SET result = NULL WHERE id IN (
    SELECT r.id FROM run r WHERE r.node_id = NEW.id AND r.result IS NOT NULL AND r.result_bytes > 0
      ORDER BY r.id FOR UPDATE);
  RETURN NULL;
END $$;
CREATE TRIGGER guard_forget_results AFTER UPDATE OF removed_in ON node FOR EACH ROW
  WHEN (OLD.removed_in IS NULL AND NEW.removed_in IS NOT NULL) EXECUTE FUNCTION forget_results();

-- Deletes those of these runs' results that exceed the limits of their node. The rule is the
-- engine's data::retention::expired_results. Workers may not delete any other result.
CREATE OR REPLACE FUNCTION forget_excess_results(runs bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH stored AS (
    SELECT r.id, r.node_id, r.result_bytes,
      row_number() OVER (PARTITION BY r.step_id ORDER BY r.id DESC) AS nth
    FROM run r WHERE r.result IS NOT NULL AND r.result_bytes > 0
      AND r.node_id IN (SELECT x.node_id FROM run x WHERE x.id = ANY (runs))),
  ranked AS (
    SELECT s.id, s.nth, count(*) OVER places AS place, sum(s.result_bytes) OVER places AS bytes
    FROM stored s WINDOW places AS (PARTITION BY s.node_id ORDER BY s.nth, s.id DESC))
  UPDATE run SET result = NULL WHERE id IN (
    -- A concurrent call may delete the same results, so rows are locked in order of id.
    SELECT r.id FROM run r WHERE r.result IS NOT NULL AND r.id = ANY (runs) AND r.id IN (
      SELECT k.id FROM ranked k WHERE k.nth > 10 OR k.place > 500 OR k.bytes > 4194304)
    ORDER BY r.id FOR UPDATE)
$$;

-- A removed step loses its output. Its results stay as long as its node. A restored step starts
-- without both.
CREATE OR REPLACE FUNCTION step_output_goes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.output := NULL;
  IF OLD.state = 'gone' OR EXISTS (SELECT FROM public.node n WHERE n.id = NEW.node_id
     AND n.removed_in IS NOT NULL) THEN
    NEW.results := NULL;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_step_output_goes BEFORE UPDATE OF state ON step FOR EACH ROW
  WHEN ((OLD.state = 'gone') <> (NEW.state = 'gone')) EXECUTE FUNCTION step_output_goes();

-- A restored noderole starts without its former system data.
CREATE OR REPLACE FUNCTION noderole_returns() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  NEW.system_data := '{}';
  RETURN NEW;
END $$;
CREATE TRIGGER guard_noderole_returns BEFORE UPDATE OF disposition ON noderole FOR EACH ROW
  WHEN (OLD.disposition <> 'in_service' AND NEW.disposition = 'in_service')
    EXECUTE FUNCTION noderole_returns();

-- After a machine reports a restart or a shutdown, a worker has to check its running processes
-- before another step starts. This function can only withdraw a confirmation, never give one.
CREATE OR REPLACE FUNCTION reset_join_confirmation(node_id uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE node n SET joined = 'welcomed' WHERE n.id = reset_join_confirmation.node_id AND n.joined = 'confirmed'
$$;
