-- Moves of nodes and deployments ----------------------------------------------------------------

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

-- A noderole of a moved deployment, or of one below it, waits only for noderoles on its node, in
-- these deployments or above them. The planner chooses the parents; this trigger rejects rows and
-- documents of another planner. It reads the edges of these noderoles once, by index. A commit can
-- move several deployments and rewrite edges, so only the final rows are checked.
CREATE OR REPLACE FUNCTION guard_moved_parents() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
  visible uuid[];
  moved uuid[];
  named text;
BEGIN
  WITH RECURSIVE below AS (
    SELECT NEW.id AS id
    UNION
    SELECT d.id FROM below b JOIN deployment d ON d.parent = b.id WHERE d.removed_in IS NULL)
  SELECT array_agg(id) INTO moved FROM below;
  WITH RECURSIVE above AS (
    SELECT NEW.id AS id
    UNION
    SELECT d.parent FROM above a JOIN deployment d ON d.id = a.id WHERE d.parent IS NOT NULL)
  SELECT moved || array_agg(id) INTO visible FROM above;
  SELECT format('%s on node %s waits for %s in deployment %s', r.role, n.fqdn, p.role, d.name)
  INTO named
  FROM noderole r
  JOIN step s ON s.noderole_id = r.id AND s.action = 'run' AND s.state <> 'gone'
  JOIN edge e ON e.child = s.id
  JOIN step x ON x.id = e.parent AND x.node_id <> s.node_id
  JOIN noderole p ON p.id = x.noderole_id AND p.deployment_id <> ALL (visible)
  JOIN deployment d ON d.id = p.deployment_id
  JOIN node n ON n.id = r.node_id
  WHERE r.deployment_id = ANY (moved) AND r.disposition = 'in_service' LIMIT 1;
  IF named IS NULL THEN
    SELECT format('%s on node %s is in deployment %s', r.role, n.fqdn, d.name) INTO named
    FROM node n JOIN noderole r ON r.node_id = n.id AND r.disposition = 'in_service'
      AND r.deployment_id <> ALL (visible)
    JOIN deployment d ON d.id = r.deployment_id
    WHERE n.deployment_id = ANY (moved) AND n.removed_in IS NULL LIMIT 1;
  END IF;
  IF named IS NOT NULL THEN
    RAISE EXCEPTION 'Deployment % cannot move: %, which is not above its new parent', NEW.name, named
      USING ERRCODE = 'GY028', HINT = 'Submit the proposal again.';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_moved_parents AFTER UPDATE OF parent ON deployment
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.parent IS NOT NULL AND NEW.parent IS DISTINCT FROM OLD.parent)
  EXECUTE FUNCTION guard_moved_parents();

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
-- older than this limit may be deeper, and its deployments stay editable and removable. A commit
-- can move several deployments, so only their final places are checked.
CREATE CONSTRAINT TRIGGER guard_levels_moved AFTER UPDATE OF parent ON deployment
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.parent IS NOT NULL AND NEW.parent IS DISTINCT FROM OLD.parent) EXECUTE FUNCTION guard_levels();
