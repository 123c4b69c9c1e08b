-- Access given by admins, and approvals that do not count because of it.
--
-- An admin who gives a person an account, a grant or a link could act as that person. So recent
-- access is traced back to the people who gave it. An approval does not count if its person and an
-- author of the review have an origin in common: the reviewer's access came from an author, an
-- author's access came from the reviewer, or both came from one admin. It counts once a second
-- admin confirms the access. Access from after the submission bars an approval, whoever gave it: an
-- account or a grant permanently, a link for the same period. Objections always count.

-- The cooling period of a policy, in hours.
CREATE OR REPLACE FUNCTION cooling_hours(policy_hash bytea) RETURNS int LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT coalesce((convert_from(o.body, 'UTF8')::jsonb ->> 'cooling_hours')::int, 24)
  FROM object o WHERE o.hash = policy_hash AND o.kind = 'policy'
$$;

CREATE OR REPLACE FUNCTION guard_cooling() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF (cooling_hours(NEW.hash) BETWEEN 0 AND 720) IS NOT TRUE THEN
    RAISE EXCEPTION 'The cooling period of policy % must be between 0 and 720 hours', NEW.number
      USING ERRCODE = 'GY002';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_cooling BEFORE INSERT ON policy FOR EACH ROW EXECUTE FUNCTION guard_cooling();

-- A person, and the people from whom their access came, at a point in time. A change counts during
-- the cooling period, unless a second admin confirmed it. An account or grant from after
-- `submitted` always counts.
CREATE OR REPLACE FUNCTION access_origins(who uuid, as_of timestamptz, cooling interval,
  submitted timestamptz) RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  WITH RECURSIVE hop AS (
    SELECT who AS person, as_of AS at
    UNION
    SELECT c.by, c.at FROM hop h JOIN access_change c ON c.person_id = h.person
    WHERE c.by IS NOT NULL AND c.at <= h.at
      AND (c.confirmed_at IS NULL AND c.at > h.at - cooling
        OR c.kind IN ('created', 'granted') AND c.at > submitted))
  SELECT DISTINCT h.person FROM hop h
$$;

-- Whether an approval does not count, because its person got access after the submission, or has an
-- origin of access in common with an author. Access from the owner of the installation (`by` is
-- NULL) never bars an approval.
CREATE OR REPLACE FUNCTION approval_barred(who uuid, review bigint, judged timestamptz)
RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM review s JOIN policy y ON y.number = s.policy_number
    CROSS JOIN LATERAL (SELECT make_interval(hours => cooling_hours(y.hash)) AS period) k
    WHERE s.id = approval_barred.review AND (
      EXISTS (
        SELECT FROM access_change c
        WHERE c.person_id = who AND c.by IS NOT NULL AND c.at > s.created_at AND c.at <= judged
          AND (c.kind IN ('created', 'granted') OR c.kind IN ('link', 'reset')
            AND c.confirmed_at IS NULL AND c.at > judged - k.period))
      OR EXISTS (
        SELECT access_origins(who, judged, k.period, s.created_at)
        INTERSECT
        SELECT access_origins(a.person_id, s.created_at, k.period, s.created_at)
        FROM review_author a WHERE a.review_id = s.id)))
$$;

-- Ends the cooling period of every access change that this second admin may confirm. Returns their
-- number.
CREATE OR REPLACE FUNCTION confirm_access(who uuid, admin uuid) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  cooling interval;
  done bigint;
BEGIN
  IF acting_person() IS DISTINCT FROM admin OR NOT acting_admin() THEN
    RAISE EXCEPTION 'Cannot confirm access: the transaction does not act for that admin'
      USING ERRCODE = 'GY041', HINT = 'Sign in as an admin who did not give the access.';
  END IF;
  PERFORM FROM person WHERE id IN (who, admin) ORDER BY id FOR SHARE;
  IF who = admin OR NOT EXISTS (SELECT FROM person p WHERE p.id = admin AND p.kind = 'human'
     AND NOT p.disabled
                                  AND 'admin' = ANY (p.permissions)) THEN
    RAISE EXCEPTION 'Only another admin can confirm this access' USING ERRCODE = 'GY041',
      HINT = 'Ask an admin who did not give the access.';
  END IF;
  SELECT make_interval(hours => cooling_hours(y.hash)) INTO cooling
  FROM head h JOIN policy y ON y.number = h.policy_number;
  cooling := coalesce(cooling, interval '24 hours');
  -- Rows with the same time record one change for all its givers.
  UPDATE access_change c SET confirmed_by = admin, confirmed_at = clock_timestamp()
  WHERE c.person_id = who AND c.confirmed_at IS NULL AND c.by IS NOT NULL
    AND NOT EXISTS (SELECT FROM access_change s
      WHERE s.person_id = c.person_id AND s.kind = c.kind AND s.at = c.at
        AND s.by IN (SELECT access_origins(admin, clock_timestamp(), cooling, 'infinity')));
  GET DIAGNOSTICS done = ROW_COUNT;
  IF done = 0 AND EXISTS (SELECT FROM access_change c WHERE c.person_id = who
     AND c.confirmed_at IS NULL AND c.by IS NOT NULL
                            AND c.at > clock_timestamp() - cooling) THEN
    RAISE EXCEPTION
      'The confirming admin gave this access, or got access from the admin who gave it'
      USING ERRCODE = 'GY041', HINT = 'Ask an admin who did not give the access.';
  END IF;
  RETURN done;
END $$;

CREATE TRIGGER guard_append_only BEFORE DELETE OR UPDATE OF id, person_id, kind, permission,
  deployment_id, by, at ON access_change
  FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON access_change FOR EACH STATEMENT
  EXECUTE FUNCTION guard_append_only();

-- The people who give the access that this transaction gives: the acting person. A service account
-- acts for the admins who created its token or made it an admin, so its access counts as theirs,
-- too. NULL: the owner of the installation.
CREATE OR REPLACE FUNCTION acting_givers() RETURNS SETOF uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  WITH service AS (
    SELECT a.person_id, a.token_id FROM acting a
    WHERE a.xid = pg_current_xact_id_if_assigned() AND a.admin AND a.token_id IS NOT NULL)
  SELECT acting_person()
  UNION
  SELECT t.created_by FROM service s JOIN token t ON t.id = s.token_id
    WHERE t.created_by IS NOT NULL
  UNION
  SELECT c.by FROM service s JOIN access_change c ON c.person_id = s.person_id
    WHERE c.kind = 'granted' AND c.by IS NOT NULL
$$;

-- Records access of a person, with the same time for each giver. Returns that time. Only triggers
-- call it.
DROP FUNCTION IF EXISTS record_access(uuid, text, text, uuid);
CREATE FUNCTION record_access(who uuid, access text, granted text, place uuid)
RETURNS timestamptz
LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
  WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
  given AS (
    INSERT INTO access_change (person_id, kind, permission, deployment_id, by, at)
    SELECT who, access, granted, place, giver, now.at FROM acting_givers() AS giver, now)
  SELECT at FROM now
$$;

CREATE OR REPLACE FUNCTION guard_access_of_person() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NEW.kind = 'human' AND TG_OP = 'INSERT' THEN
    PERFORM record_access(NEW.id, 'created', NULL, NULL);
    RETURN NULL;
  END IF;
  IF NEW.kind = 'human' AND OLD.disabled AND NOT NEW.disabled THEN
    PERFORM record_access(NEW.id, 'enabled', NULL, NULL);
  END IF;
  PERFORM record_access(NEW.id, 'granted', gained, NULL) FROM unnest(NEW.permissions) AS gained
  WHERE (gained = 'admin' OR gained = 'reviewer' AND NEW.kind = 'human')
    AND (TG_OP = 'INSERT' OR gained <> ALL (OLD.permissions));
  RETURN NULL;
END $$;
CREATE TRIGGER guard_access AFTER INSERT OR UPDATE OF disabled, permissions ON person
  FOR EACH ROW EXECUTE FUNCTION guard_access_of_person();

CREATE OR REPLACE FUNCTION guard_access_of_grant() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM record_access(NEW.person_id, 'granted', NEW.permission, NEW.deployment_id);
  RETURN NULL;
END $$;
CREATE TRIGGER guard_access AFTER INSERT ON scoped_grant
  FOR EACH ROW WHEN (NEW.permission = 'reviewer') EXECUTE FUNCTION guard_access_of_grant();

-- A link names the admin who created it. So does its session, until its person sets a password. The
-- link has the time of its access change, by which guard_link_session finds all of its givers.
CREATE OR REPLACE FUNCTION guard_access_of_link() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  NEW.created_by := acting_person();
  NEW.created_at := record_access(NEW.person_id, 'link', NULL, NULL);
  RETURN NEW;
END $$;
CREATE TRIGGER guard_access BEFORE INSERT ON token
  FOR EACH ROW WHEN (NEW.kind = 'sign_in') EXECUTE FUNCTION guard_access_of_link();

-- The admin who creates the token of a service account can act as that account.
CREATE OR REPLACE FUNCTION guard_access_of_service() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO access_change (person_id, kind, by)
  SELECT p.id, 'token', acting_person() FROM person p
  WHERE p.id = NEW.person_id AND p.kind = 'service';
  RETURN NULL;
END $$;
CREATE TRIGGER guard_access_of_service AFTER INSERT ON token
  FOR EACH ROW WHEN (NEW.kind = 'api') EXECUTE FUNCTION guard_access_of_service();

CREATE OR REPLACE FUNCTION guard_link_session() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    -- The same transaction used the link.
    NEW.link_by := (SELECT t.created_by FROM token t WHERE t.person_id = NEW.person_id
      AND t.kind = 'sign_in' AND t.used_at = now()
                    AND t.created_by IS NOT NULL LIMIT 1);
  ELSIF OLD.link_by IS NOT NULL AND (NEW.link_by IS NULL OR NEW.token_hash <> OLD.token_hash) THEN
    -- Setting a password replaces the session's token. The givers are those of the link that the
    -- transaction of the session used. No other link can have begun it. The server's role can delete
    -- used links, so without the link, the givers of all links count.
    NEW.link_by := NULL;
    INSERT INTO access_change (person_id, kind, by, at)
    WITH used AS (
      SELECT c.at FROM token t
      JOIN access_change c ON c.person_id = t.person_id AND c.kind = 'link' AND c.at = t.created_at
      WHERE t.person_id = NEW.person_id AND t.kind = 'sign_in' AND t.used_at = OLD.created_at)
    SELECT NEW.person_id, 'reset', givers.giver, now.at
    FROM (
      SELECT OLD.link_by AS giver
      UNION
      SELECT c.by FROM access_change c
      WHERE c.person_id = NEW.person_id AND c.kind = 'link' AND c.by IS NOT NULL
        AND (c.at IN (TABLE used) OR NOT EXISTS (TABLE used))) AS givers,
      (SELECT clock_timestamp() AS at OFFSET 0) AS now;
  ELSIF NEW.link_by IS DISTINCT FROM OLD.link_by THEN
    RAISE EXCEPTION 'The admin whose link began a session cannot be changed'
      USING ERRCODE = 'GY042', HINT = 'Set a password in that session.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_link_session BEFORE INSERT OR UPDATE OF link_by, token_hash ON session
  FOR EACH ROW EXECUTE FUNCTION guard_link_session();

-- The admin who created a link may use it. So its session acts for no one until its person sets a
-- password (acting_person). These triggers report the reason.
CREATE OR REPLACE FUNCTION guard_password_first() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM acting a WHERE a.xid = pg_current_xact_id_if_assigned()
     AND a.needs_password) THEN
    RAISE EXCEPTION
      'This session began with a sign-in link from an admin, and its person has not set a '
      'password yet'
      USING ERRCODE = 'GY042', HINT = 'Set a password first.';
  END IF;
  RETURN coalesce(NEW, OLD);
END $$;
DO $$
DECLARE tbl text;
BEGIN
  FOREACH tbl IN ARRAY ARRAY['verdict', 'blueprint', 'proposal', 'edit', 'review', 'comment',
    'barclamp', 'token', 'passkey', 'totp'] LOOP
    EXECUTE format('CREATE TRIGGER guard_password_first BEFORE INSERT ON %I
                    FOR EACH ROW EXECUTE FUNCTION guard_password_first()', tbl);
  END LOOP;
END $$;
CREATE TRIGGER guard_password_first_change BEFORE UPDATE ON edit FOR EACH ROW
  EXECUTE FUNCTION guard_password_first();
CREATE TRIGGER guard_password_first_change BEFORE UPDATE ON comment FOR EACH ROW
  EXECUTE FUNCTION guard_password_first();
CREATE TRIGGER guard_password_first BEFORE INSERT OR UPDATE OF permissions, disabled ON person
  FOR EACH ROW EXECUTE FUNCTION guard_password_first();
CREATE TRIGGER guard_password_first BEFORE INSERT OR DELETE ON scoped_grant FOR EACH ROW
  EXECUTE FUNCTION guard_password_first();
CREATE TRIGGER guard_password_first BEFORE UPDATE OF confirmed_by ON access_change FOR EACH ROW
  EXECUTE FUNCTION guard_password_first();
CREATE TRIGGER guard_password_first BEFORE UPDATE OF on_hold_by, on_hold_since, on_hold_reason,
  priority ON deployment
  FOR EACH ROW EXECUTE FUNCTION guard_password_first();
CREATE TRIGGER guard_password_first BEFORE UPDATE OF available ON node FOR EACH ROW
  EXECUTE FUNCTION guard_password_first();
CREATE TRIGGER guard_password_first BEFORE UPDATE OF drain_since ON worker FOR EACH ROW
  EXECUTE FUNCTION guard_password_first();

-- Verdicts from before an account was disabled stay void. The sequence also covers verdicts of open
-- transactions.
CREATE OR REPLACE FUNCTION guard_void_verdicts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  NEW.verdicts_void_to := greatest(OLD.verdicts_void_to,
    coalesce(pg_sequence_last_value(pg_get_serial_sequence('verdict', 'id')), 0));
  RETURN NEW;
END $$;
CREATE TRIGGER guard_void_verdicts BEFORE UPDATE OF disabled ON person
  FOR EACH ROW WHEN (NEW.disabled AND NOT OLD.disabled) EXECUTE FUNCTION guard_void_verdicts();

CREATE OR REPLACE FUNCTION guard_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.used_at IS NOT NULL AND NEW.used_at IS DISTINCT FROM OLD.used_at)
     OR (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NULL) THEN
    RAISE EXCEPTION 'This token was already used or revoked' USING ERRCODE = 'GY016',
      HINT = 'Create another one.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_token BEFORE UPDATE ON token FOR EACH ROW EXECUTE FUNCTION guard_token();
