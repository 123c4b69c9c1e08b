-- Policies --------------------------------------------------------------------------------------

-- Only the commit of a review that names the policy inserts it. A policy requires at least one
-- approval.
CREATE OR REPLACE FUNCTION guard_policy() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  SELECT t.number INTO NEW.blueprint_number FROM blueprint t JOIN head h ON h.epoch = t.epoch LEFT JOIN review s ON s.id = t.review_id
  WHERE t.xid = pg_current_xact_id() AND (t.kind = 'genesis' OR s.new_policy_hash = NEW.hash);
  IF NEW.blueprint_number IS NULL THEN
    RAISE EXCEPTION 'A policy can only be inserted by the commit that introduces it'
      USING ERRCODE = 'GY002';
  END IF;
  IF (approvals_required(NEW.hash, '{}') >= 1) IS NOT TRUE THEN
    RAISE EXCEPTION 'A policy must require at least one approval' USING ERRCODE = 'GY002';
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION approvals_required(policy_hash bytea, risks text[]) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT greatest((body ->> 'approvals')::int,
                  (SELECT max(r.value::int) FROM jsonb_each_text(body -> 'by_risk') r WHERE r.key = ANY (risks)))
  FROM (SELECT convert_from(o.body, 'UTF8')::jsonb AS body FROM object o
        WHERE o.hash = policy_hash AND o.kind = 'policy') p
$$;
CREATE TRIGGER guard_policy BEFORE INSERT ON policy FOR EACH ROW EXECUTE FUNCTION guard_policy();
