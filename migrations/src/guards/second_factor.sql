-- Second factors: an authenticator app (TOTP) or a passkey.
--
-- A session without its factor acts for no one (act_as). Its transaction may verify a factor, or
-- enrol the first one if its person has none. So a stolen password alone can neither act nor
-- replace a factor. The database cannot verify a code or a signature. The server does so and then
-- calls the functions below, which accept each code once.

CREATE OR REPLACE FUNCTION has_factor(who uuid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM totp t WHERE t.person_id = who AND t.confirmed_at IS NOT NULL)
      OR EXISTS (SELECT FROM passkey k WHERE k.person_id = who AND k.revoked_at IS NULL)
$$;

-- Whether the policy in force requires a second factor from everyone.
CREATE OR REPLACE FUNCTION policy_demands_factor() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM head h JOIN policy y ON y.number = h.policy_number JOIN object o ON o.hash = y.hash
      AND o.kind = 'policy'
    WHERE convert_from(o.body, 'UTF8')::jsonb -> 'second_factor' = 'true')
$$;

-- Whether a session of this person still needs its second factor.
CREATE OR REPLACE FUNCTION lacks_factor(who uuid, presented timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT presented IS NULL AND (has_factor(who) OR policy_demands_factor())
$$;

-- Whether this transaction presented a session without its factor. VOLATILE, so that it also sees
-- rows written by the calling statement.
CREATE OR REPLACE FUNCTION acting_pending() RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM acting a WHERE a.xid = pg_current_xact_id_if_assigned() AND a.pending)
$$;

-- The person of such a session who may enrol a first factor. NULL: there is no such session, or
-- they have a factor.
CREATE OR REPLACE FUNCTION acting_pending_person() RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.person_id FROM acting a JOIN session s ON s.id = a.session_id
  WHERE a.xid = pg_current_xact_id_if_assigned() AND a.pending AND s.link_by IS NULL
    AND NOT has_factor(a.person_id)
$$;

CREATE OR REPLACE FUNCTION acting_session() RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.session_id FROM acting a WHERE a.xid = pg_current_xact_id_if_assigned()
$$;

-- Marks the factor of the presented session as verified. From here on, the transaction acts for its
-- person.
CREATE OR REPLACE FUNCTION mark_factor_presented() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE session s SET factor_at = now() FROM acting a
    WHERE a.xid = pg_current_xact_id_if_assigned() AND s.id = a.session_id;
  UPDATE acting a SET pending = false WHERE a.xid = pg_current_xact_id_if_assigned()
$$;

-- The person of the presented session. After an admin's link, it requires a password first.
CREATE OR REPLACE FUNCTION factor_person() RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  found_session record;
BEGIN
  SELECT a.person_id, s.link_by INTO found_session
    FROM acting a JOIN session s ON s.id = a.session_id
  WHERE a.xid = pg_current_xact_id_if_assigned();
  IF NOT FOUND THEN
    RAISE EXCEPTION 'Cannot verify a second factor without a session' USING ERRCODE = 'GY036',
      HINT = 'Sign in with a browser.';
  END IF;
  IF found_session.link_by IS NOT NULL THEN
    RAISE EXCEPTION
      'This session began with a sign-in link from an admin, and its person has not set a '
      'password yet'
      USING ERRCODE = 'GY042', HINT = 'Set a password first.';
  END IF;
  RETURN found_session.person_id;
END $$;

-- Rejects a code from another time.
CREATE OR REPLACE FUNCTION check_step(step bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF (abs(step - floor(extract(epoch FROM clock_timestamp()) / 30)) <= 2) IS NOT TRUE THEN
    RAISE EXCEPTION 'The code has expired or is not valid yet' USING ERRCODE = 'GY071',
      HINT = 'Check the clock of your device and enter a new code.';
  END IF;
END $$;

-- The time limit for confirming an authenticator app, from the start of its set-up.
CREATE OR REPLACE FUNCTION totp_setup_time() RETURNS interval LANGUAGE sql IMMUTABLE AS $$
  SELECT interval '15 minutes' $$;

-- Confirms the authenticator app that this session set up, with the time step of a verified code.
-- False: there is no such app.
CREATE OR REPLACE FUNCTION confirm_totp(step bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  who uuid := factor_person();
BEGIN
  PERFORM check_step(step);
  PERFORM FROM person WHERE id = who FOR NO KEY UPDATE;
  IF acting_pending() AND has_factor(who) THEN
    RAISE EXCEPTION 'This session lacks its second factor'
      USING ERRCODE = 'GY070', HINT = 'Enter a code from the authenticator app, or use a passkey.';
  END IF;
  UPDATE totp t SET confirmed_at = now(), last_step = step
  WHERE t.person_id = who AND t.confirmed_at IS NULL AND t.created_at > now() - totp_setup_time()
    AND t.session_id = (SELECT a.session_id FROM acting a
      WHERE a.xid = pg_current_xact_id_if_assigned());
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM mark_factor_presented();
  RETURN true;
END $$;

-- Accepts a verified code of the authenticator app, by its time step. False: the person has no such
-- app.
CREATE OR REPLACE FUNCTION present_totp(step bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  who uuid := factor_person();
  last bigint;
BEGIN
  PERFORM check_step(step);
  SELECT t.last_step INTO last FROM totp t WHERE t.person_id = who AND t.confirmed_at IS NOT NULL
    FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF step <= last THEN
    RAISE EXCEPTION 'This code was already used' USING ERRCODE = 'GY071',
      HINT = 'Wait for the next code.';
  END IF;
  UPDATE totp SET last_step = step WHERE person_id = who;
  PERFORM mark_factor_presented();
  RETURN true;
END $$;

-- Accepts a passkey whose signature the server verified. False: it belongs to another person or is
-- revoked.
CREATE OR REPLACE FUNCTION present_passkey(passkey uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  who uuid := factor_person();
BEGIN
  PERFORM FROM passkey k WHERE k.id = present_passkey.passkey AND k.person_id = who
    AND k.revoked_at IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM mark_factor_presented();
  RETURN true;
END $$;

-- A session of the person sets up an authenticator app. If it lacks its factor, it may only set up
-- the first one. The person or an admin removes it.
CREATE OR REPLACE FUNCTION guard_totp() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  who uuid := coalesce(NEW.person_id, OLD.person_id);
  is_own boolean;
BEGIN
  IF is_owner() THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  -- The lock prevents two sessions from both enrolling the first factor.
  PERFORM FROM person p WHERE p.id = who AND p.kind = 'human' AND NOT p.disabled FOR NO KEY UPDATE;
  is_own := FOUND AND (who = acting_person() AND acting_in_session()
    OR who = acting_pending_person());
  IF TG_OP = 'DELETE' AND (is_own OR acting_admin()) IS TRUE THEN
    RETURN OLD;
  END IF;
  IF is_own IS NOT TRUE THEN
    IF acting_pending() THEN
      RAISE EXCEPTION 'This session lacks its second factor'
        USING ERRCODE = 'GY070',
          HINT = 'Enter a code from the authenticator app, or use a passkey.';
    END IF;
    RAISE EXCEPTION 'Cannot change the authenticator app of another person'
      USING ERRCODE = 'GY037', HINT = 'Sign in as that person or as an admin.';
  END IF;
  IF NEW.confirmed_at IS NOT NULL OR NEW.last_step <> 0 THEN
    RAISE EXCEPTION 'An authenticator app must be confirmed with a code' USING ERRCODE = 'GY070',
      HINT = 'Enter a code from the app.';
  END IF;
  NEW.session_id := acting_session();
  RETURN NEW;
END $$;
CREATE TRIGGER guard_totp BEFORE INSERT OR UPDATE OR DELETE ON totp FOR EACH ROW
  EXECUTE FUNCTION guard_totp();

-- Registering a passkey verifies the session's factor.
CREATE OR REPLACE FUNCTION guard_factor_enrolled() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM acting a WHERE a.xid = pg_current_xact_id_if_assigned()
     AND a.person_id = NEW.person_id) THEN
    PERFORM mark_factor_presented();
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_factor_enrolled AFTER INSERT ON passkey FOR EACH ROW
  EXECUTE FUNCTION guard_factor_enrolled();

-- After the last factor of a person is removed, no session counts as verified. An admin who removes
-- another person's factor could use their account, so this is recorded as access given by the
-- admin.
CREATE OR REPLACE FUNCTION guard_factor_removed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT has_factor(OLD.person_id) THEN
    UPDATE session SET factor_at = NULL WHERE person_id = OLD.person_id AND factor_at IS NOT NULL;
  END IF;
  INSERT INTO access_change (person_id, kind, by) SELECT OLD.person_id, 'factor_removed',
    acting_person() WHERE acting_person() <> OLD.person_id;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_factor_removed AFTER DELETE ON totp FOR EACH ROW
  WHEN (OLD.confirmed_at IS NOT NULL) EXECUTE FUNCTION guard_factor_removed();
CREATE TRIGGER guard_factor_removed AFTER UPDATE OF revoked_at ON passkey FOR EACH ROW
  WHEN (NEW.revoked_at IS NOT NULL AND OLD.revoked_at IS NULL)
    EXECUTE FUNCTION guard_factor_removed();

CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON totp FOR EACH STATEMENT
  EXECUTE FUNCTION guard_append_only();
