-- Passkeys, their confirmations, and signatures of verdicts.
--
-- The database checks that a passkey belongs to the person and is confirmed, and that no signature
-- is used twice. It cannot verify a signature. The server does so at each commit, and the worker
-- again before each run.

-- The maximum number of passkeys per person.
CREATE OR REPLACE FUNCTION most_passkeys() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 20';

CREATE OR REPLACE FUNCTION guard_passkey() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF NEW.counter < OLD.counter
       OR (OLD.revoked_at IS NOT NULL
       AND (NEW.revoked_at, NEW.revoked_by) IS DISTINCT FROM (OLD.revoked_at, OLD.revoked_by)) THEN
      RAISE EXCEPTION 'The revocation of passkey % is permanent, and its counter can only rise',
        NEW.id USING ERRCODE = 'GY016';
    END IF;
    IF NEW.revoked_at IS NOT NULL AND OLD.revoked_at IS NULL AND NOT is_owner()
       AND (acting_person() IS NULL OR NEW.revoked_by IS DISTINCT FROM acting_person()
         OR NOT acting_in_session()
            OR (NEW.person_id <> acting_person() AND NOT acting_admin())) THEN
      RAISE EXCEPTION 'Cannot revoke the passkey of another person'
        USING ERRCODE = 'GY037', HINT = 'Sign in as that person or as an admin.';
    END IF;
    RETURN NEW;
  END IF;
  -- The lock keeps the account enabled and keeps concurrent registrations within the limit.
  PERFORM FROM person p WHERE p.id = NEW.person_id AND p.kind = 'human' AND NOT p.disabled
    FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'Only people with an enabled account can have passkeys' USING ERRCODE = 'GY037';
  END IF;
  IF (SELECT count(*) >= most_passkeys() FROM passkey k WHERE k.person_id = NEW.person_id
     AND k.revoked_at IS NULL) THEN
    RAISE EXCEPTION 'A person can have at most % passkeys', most_passkeys() USING ERRCODE = 'GY057',
      HINT = 'Revoke a passkey first.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_passkey BEFORE INSERT OR UPDATE ON passkey FOR EACH ROW
  EXECUTE FUNCTION guard_passkey();
CREATE TRIGGER guard_with_credential BEFORE INSERT ON passkey FOR EACH ROW
  EXECUTE FUNCTION guard_with_credential('person_id', 'enrol');
CREATE TRIGGER guard_append_only BEFORE DELETE OR UPDATE OF id, person_id, name, rp_id, origin,
  credential_id, credential, created_at
  ON passkey FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only();

-- Whether a passkey can sign verdicts: confirmed and not revoked.
CREATE OR REPLACE FUNCTION passkey_counts(passkey uuid) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM passkey k JOIN passkey_confirmation c ON c.passkey_id = k.id
                 WHERE k.id = passkey_counts.passkey AND k.revoked_at IS NULL)
$$;

-- The owner, another passkey of its person or a passkey of an admin confirms a passkey.
CREATE OR REPLACE FUNCTION guard_passkey_confirmation() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  signer passkey;
  confirmed passkey;
BEGIN
  IF is_owner() THEN
    RETURN NEW;
  END IF;
  SELECT * INTO signer FROM passkey k WHERE k.id = NEW.by_passkey;
  SELECT * INTO confirmed FROM passkey k WHERE k.id = NEW.passkey_id;
  IF NEW.by_passkey IS NULL OR NOT passkey_counts(NEW.by_passkey)
     OR confirmed.revoked_at IS NOT NULL THEN
    RAISE EXCEPTION
      'A passkey can only be confirmed with a confirmed passkey, or by the owner of the database'
      USING ERRCODE = 'GY058',
        HINT = 'Sign with a confirmed passkey, or run `gantry admin --confirm-passkey`.';
  END IF;
  IF signer.person_id IS DISTINCT FROM acting_person() OR NOT acting_in_session()
     OR (confirmed.person_id <> signer.person_id AND NOT acting_admin()) THEN
    RAISE EXCEPTION
      'Cannot confirm the passkey: the transaction acts neither for its owner nor for an admin'
      USING ERRCODE = 'GY058', HINT = 'Sign in as an admin.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_passkey_confirmation BEFORE INSERT ON passkey_confirmation
  FOR EACH ROW EXECUTE FUNCTION guard_passkey_confirmation();

-- A signature is inserted with its verdict, from a passkey of the verdict's person.
CREATE OR REPLACE FUNCTION guard_verdict_signature() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM verdict v JOIN passkey k ON k.person_id = v.person_id
    WHERE v.id = NEW.verdict_id AND k.id = NEW.passkey_id AND k.revoked_at IS NULL
      AND (is_owner() OR v.person_id = acting_person() AND acting_in_session())) THEN
    RAISE EXCEPTION 'The verdict is not signed with a passkey of its person'
      USING ERRCODE = 'GY059', HINT = 'Sign in as that person and use one of their passkeys.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_verdict_signature BEFORE INSERT ON verdict_signature
  FOR EACH ROW EXECUTE FUNCTION guard_verdict_signature();

DO $$
DECLARE tbl text;
BEGIN
  FOREACH tbl IN ARRAY ARRAY['passkey_confirmation', 'verdict_signature', 'signature_demand'] LOOP
    EXECUTE format('CREATE TRIGGER guard_append_only BEFORE UPDATE OR DELETE ON %I
                    FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only()', tbl);
  END LOOP;
  FOREACH tbl IN ARRAY ARRAY['passkey', 'passkey_confirmation', 'verdict_signature',
    'signature_demand'] LOOP
    EXECUTE format('CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON %I
                    FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only()', tbl);
  END LOOP;
END $$;

-- The signature rules of the policies that apply to a review: the one in force, and the one that it
-- introduces.
CREATE OR REPLACE FUNCTION signed_rules(review bigint)
RETURNS TABLE (deployment_id uuid, risk text)
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT (r.value ->> 'deployment')::uuid, r.value ->> 'risk'
  FROM review s LEFT JOIN policy y ON y.number = s.policy_number
  JOIN object o ON o.hash IN (y.hash, s.new_policy_hash) AND o.kind = 'policy'
  CROSS JOIN LATERAL jsonb_array_elements(coalesce(convert_from(o.body, 'UTF8')::jsonb -> 'signed',
    '[]')) r
  WHERE s.id = signed_rules.review
$$;

-- Whether the approvals of a review must be signed: if a rule matches its risks and a deployment
-- that it touches, or an ancestor. A policy change must be signed if any rule exists. Otherwise an
-- unsigned change could drop the rule.
CREATE OR REPLACE FUNCTION requires_signature(review bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  s review;
BEGIN
  IF NOT EXISTS (SELECT FROM signed_rules(review)) THEN
    RETURN false;
  END IF;
  SELECT * INTO s FROM review x WHERE x.id = requires_signature.review;
  RETURN s.new_policy_hash IS NOT NULL OR EXISTS (
    WITH RECURSIVE above AS (
      SELECT unnest(touched_by(s.id)) AS id
      UNION
      SELECT d.parent FROM above a JOIN deployment d ON d.id = a.id WHERE d.parent IS NOT NULL)
    SELECT FROM signed_rules(s.id) r
    WHERE (r.risk IS NULL OR r.risk = ANY (s.risk))
      AND (r.deployment_id IS NULL OR r.deployment_id IN (SELECT a.id FROM above a)));
END $$;

-- Whether a confirmed passkey of the verdict's person signed it.
CREATE OR REPLACE FUNCTION is_signed(verdict bigint) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM verdict_signature g JOIN verdict v ON v.id = g.verdict_id
                 JOIN passkey k ON k.id = g.passkey_id AND k.person_id = v.person_id
                 WHERE v.id = is_signed.verdict AND passkey_counts(k.id))
$$;
