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
CREATE OR REPLACE FUNCTION granted_deployments(who uuid) RETURNS TABLE (deployment_id uuid, permission text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  WITH RECURSIVE inside AS (
    SELECT g.deployment_id, g.permission FROM scoped_grant g WHERE g.person_id = who
    UNION
    SELECT d.id, i.permission FROM inside i JOIN deployment d ON d.parent = i.deployment_id)
  SELECT i.deployment_id, i.permission FROM inside i
$$;

-- Whether a person has one of these permissions in all of these deployments: everywhere, or by a
-- grant on each one or on an ancestor.
CREATE OR REPLACE FUNCTION has_permission_in(p person, required text[], deployments uuid[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF p.permissions && required THEN
    RETURN true;
  END IF;
  IF coalesce(cardinality(deployments), 0) = 0
     OR NOT EXISTS (SELECT FROM scoped_grant g WHERE g.person_id = p.id AND g.permission = ANY (required)) THEN
    RETURN false;
  END IF;
  RETURN EXISTS (
    SELECT FROM unnest(required) AS w (permission) WHERE NOT EXISTS (
      SELECT FROM unnest(deployments) AS scope (id) WHERE NOT EXISTS (
        WITH RECURSIVE above AS (
          SELECT scope.id AS id
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
  SELECT p.kind = 'human' AND NOT p.disabled AND has_permission_in(p, ARRAY['reviewer'], places)
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
