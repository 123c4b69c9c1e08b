-- Checks of roles: which steps have one, and which results workers may record.

-- A step with a check has a row from its first success until it is gone. Its check is due as soon
-- as the step is ACTIVE. The function runs as the owner: neither commits nor workers insert rows.
-- An ERROR that becomes ACTIVE was just checked.
CREATE OR REPLACE FUNCTION step_is_checked() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NEW.check_s IS NULL OR NEW.state = 'gone' THEN
    DELETE FROM role_check WHERE step_id = NEW.id;
  ELSE
    INSERT INTO role_check (step_id, node_id, due_at) VALUES (NEW.id, NEW.node_id, now())
    ON CONFLICT (step_id) DO UPDATE
      SET due_at = now(), passes_until = now(), worker_id = NULL, leased_at = NULL;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_step_is_checked AFTER UPDATE OF state, check_s ON step FOR EACH ROW
  WHEN (NEW.check_s IS NOT NULL AND NEW.state = 'active'
      AND (OLD.state NOT IN ('active', 'error') OR NEW.check_s IS DISTINCT FROM OLD.check_s)
    OR OLD.check_s IS NOT NULL AND (NEW.check_s IS NULL OR NEW.state = 'gone' AND OLD.state <> 'gone'))
  EXECUTE FUNCTION step_is_checked();

-- Whether this transaction recorded this result of the check of a step, at its generation.
CREATE OR REPLACE FUNCTION was_just_checked(step uuid, result text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM role_check c JOIN step s ON s.id = c.step_id
    WHERE c.step_id = step AND c.state = result AND c.checked_at = now()
      AND c.generation = s.generation)
$$;

-- A confirmed worker leases a check, and only the holder of a valid lease records a result. Times
-- are the database's. With a large step, the counter would reach its end.
CREATE OR REPLACE FUNCTION guard_role_check() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  recorded boolean := NEW.checked_at IS DISTINCT FROM OLD.checked_at;
  before int := CASE WHEN NEW.generation = OLD.generation THEN OLD.failures ELSE 0 END;
  problem text;
BEGIN
  problem := CASE
    WHEN NEW.due_at <> OLD.due_at AND NEW.due_at NOT BETWEEN now() AND now() + interval '25 hours'
      THEN 'is due in the past or too late'
    WHEN NEW.worker_id IS NOT NULL
      AND (NEW.worker_id, NEW.leased_at) IS DISTINCT FROM (OLD.worker_id, OLD.leased_at) THEN CASE
        WHEN NEW.leased_at <> now() THEN 'is leased at another time'
        WHEN OLD.due_at > now() THEN 'is leased before it is due'
        WHEN NOT EXISTS (SELECT FROM worker w WHERE w.id = NEW.worker_id AND w.phase = 'confirmed'
          AND w.lease_until > now()) THEN 'is leased by a worker that is not confirmed' END
    WHEN NOT recorded AND (NEW.state, NEW.failures, NEW.caused_rerun, NEW.detail, NEW.duration_ms,
        NEW.generation, NEW.changed_at, NEW.passes_until)
      IS DISTINCT FROM (OLD.state, OLD.failures, OLD.caused_rerun, OLD.detail, OLD.duration_ms,
        OLD.generation, OLD.changed_at, OLD.passes_until) THEN 'has a result without a check'
    WHEN recorded THEN CASE
        WHEN OLD.worker_id IS NULL OR OLD.due_at < now() THEN 'has a result without a lease'
        WHEN NEW.worker_id IS NOT NULL THEN 'has a result and is still leased'
        WHEN NEW.checked_at IS DISTINCT FROM now() OR NEW.changed_at IS DISTINCT FROM
          CASE WHEN NEW.state = OLD.state THEN OLD.changed_at ELSE now() END
          THEN 'was checked at another time'
        WHEN NEW.passes_until > CASE NEW.state WHEN 'passing'
            THEN now() + interval '50 hours' ELSE now() END THEN 'counts as passed for too long'
        WHEN NEW.failures > before::bigint + 1 THEN 'has more failures than there were'
        WHEN NOT EXISTS (SELECT FROM step s WHERE s.id = NEW.step_id
            AND s.generation = NEW.generation AND s.state IN ('active', 'error')
            AND s.check_s IS NOT NULL)
          THEN 'has a result for another state of its step' END
  END;
  IF problem IS NOT NULL AND NOT owns_tables() THEN
    RAISE EXCEPTION 'The check of step % %', NEW.step_id, problem
      USING ERRCODE = 'GY047', HINT = 'A worker leases a check that is due, then records its result.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_role_check AFTER UPDATE ON role_check FOR EACH ROW
  EXECUTE FUNCTION guard_role_check();
