-- Reviews: submission, scope and replan ---------------------------------------------------------

CREATE OR REPLACE FUNCTION guard_review() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  h head;
  p proposal;
  required_approvals int;
BEGIN
  SELECT * INTO p FROM proposal WHERE id = NEW.proposal_id FOR UPDATE;
  SELECT * INTO h FROM head;
  NEW.xid := pg_current_xact_id();
  NEW.created_at := now();
  IF p.state <> 'open' OR p.version <> NEW.version THEN
    RAISE EXCEPTION 'Proposal % is % at version %, not %', p.id, p.state, p.version, NEW.version
      USING ERRCODE = 'GY005', HINT = 'Reload the proposal and submit its newest version.';
  END IF;
  IF NEW.policy_number <> h.policy_number THEN
    RAISE EXCEPTION 'Policy % is in force, not policy %', h.policy_number, NEW.policy_number
      USING ERRCODE = 'GY006';
  END IF;
  IF p.node_id IS NOT NULL AND NEW.new_policy_hash IS NOT NULL THEN
    RAISE EXCEPTION 'The proposal is for one node, but it also changes the policy'
      USING ERRCODE = 'GY022', HINT = 'Open a proposal for the deployment instead.';
  END IF;
  IF NEW.epoch <> h.epoch THEN
    RAISE EXCEPTION 'The current epoch is %, not %', h.epoch, NEW.epoch USING ERRCODE = 'GY008';
  END IF;
  -- A policy change must satisfy both the old and the new policy. An unreadable policy requires
  -- 1,000 approvals.
  SELECT greatest(approvals_required(y.hash, NEW.risk),
                  CASE WHEN NEW.new_policy_hash IS NOT NULL THEN coalesce(approvals_required(NEW.new_policy_hash, NEW.risk), 1000) END)
  INTO required_approvals FROM policy y WHERE y.number = NEW.policy_number;
  IF (NEW.approvals_needed >= required_approvals) IS NOT TRUE THEN
    RAISE EXCEPTION 'Policy % requires % approvals, but the review requires %', NEW.policy_number,
      required_approvals, NEW.approvals_needed
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_review BEFORE INSERT ON review FOR EACH ROW EXECUTE FUNCTION guard_review();

CREATE OR REPLACE FUNCTION guard_review_part() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM review s JOIN head h ON h.epoch = s.epoch
                 WHERE s.id = NEW.review_id AND s.xid = pg_current_xact_id()) THEN
    RAISE EXCEPTION 'Review % is already submitted and cannot be extended', NEW.review_id
      USING ERRCODE = 'GY013', HINT = 'Submit the proposal again.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_review_part BEFORE INSERT ON review_base FOR EACH ROW EXECUTE FUNCTION guard_review_part();
CREATE TRIGGER guard_review_part BEFORE INSERT ON review_author FOR EACH ROW EXECUTE FUNCTION guard_review_part();
CREATE TRIGGER guard_review_part BEFORE INSERT ON review_document FOR EACH ROW EXECUTE FUNCTION guard_review_part();

-- A node-scoped proposal changes only its node. Required noderoles may be added, and dependent ones
-- removed, on phantom nodes of deployments. Added roles become bindable in their deployment,
-- without any data. Any other change needs a proposal for the deployment.
CREATE OR REPLACE FUNCTION guard_scope() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE beyond text;
BEGIN
  SELECT string_agg(x.row_name, ', ') INTO beyond FROM (
    SELECT a.kind || ' ' || a.id AS row_name
    FROM added a JOIN review s ON s.id = a.review_id JOIN proposal p ON p.id = s.proposal_id
    WHERE p.node_id IS NOT NULL AND NOT keeps_to_node(a.kind, a.id, a.old_hash, a.new_hash, p.node_id) LIMIT 5) x;
  IF beyond IS NOT NULL THEN
    RAISE EXCEPTION 'The proposal is for one node, but it also changes: %', beyond
      USING ERRCODE = 'GY022', HINT = 'Open a proposal for the deployment instead.';
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION keeps_to_node(kind text, id uuid, old_hash bytea, new_hash bytea, scope uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  was jsonb := (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = old_hash);
  is_now jsonb := (SELECT convert_from(o.body, 'UTF8')::jsonb FROM object o WHERE o.hash = new_hash);
BEGIN
  IF kind = 'node' AND id = scope THEN
    RETURN was IS NULL OR is_now IS NULL OR was -> 'deployment' = is_now -> 'deployment';
  END IF;
  IF was IS NULL OR is_now IS NULL THEN
    RETURN false;
  END IF;
  IF kind = 'node' THEN
    RETURN was - 'noderoles' = is_now - 'noderoles' AND EXISTS (SELECT FROM node n WHERE n.id = keeps_to_node.id AND n.phantom);
  END IF;
  RETURN was - 'roles' = is_now - 'roles' AND NOT EXISTS (
    SELECT FROM jsonb_each(coalesce(was -> 'roles', '{}')) o FULL JOIN jsonb_each(coalesce(is_now -> 'roles', '{}')) n USING (key)
    WHERE o.value IS DISTINCT FROM n.value AND (o.value IS NOT NULL OR n.value -> 'data' IS DISTINCT FROM '{}'));
END $$;
CREATE TRIGGER guard_scope AFTER INSERT ON review_document REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION guard_scope();

-- The result of replanning an outdated review is recorded once, at the version that the replan
-- created.
CREATE OR REPLACE FUNCTION guard_replan() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE p proposal;
BEGIN
  SELECT * INTO p FROM proposal WHERE id = NEW.proposal_id FOR UPDATE;
  IF p.state <> 'open' OR p.version <> NEW.version
     OR EXISTS (SELECT FROM review s WHERE s.id = NEW.before_id AND s.version <> NEW.version - 1)
     OR EXISTS (SELECT FROM review s WHERE s.id = NEW.after_id AND s.version <> NEW.version) THEN
    RAISE EXCEPTION 'Proposal % is % at version %, and was not replanned as version %', p.id,
      p.state, p.version, NEW.version
      USING ERRCODE = 'GY005', HINT = 'Reload the proposal.';
  END IF;
  IF NOT is_outdated(NEW.before_id) THEN
    RAISE EXCEPTION 'Cannot replan review %: its base has not changed', NEW.before_id
      USING ERRCODE = 'GY035', HINT = 'Only people can change the proposal. Sign in.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_replan BEFORE INSERT ON replan FOR EACH ROW EXECUTE FUNCTION guard_replan();
