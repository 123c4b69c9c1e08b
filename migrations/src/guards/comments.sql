-- Comments --------------------------------------------------------------------------------------

-- Takes the proposal's row lock, as verdicts do: no thread is opened between check and commit. The
-- rules are those of the engine's gate::discussion.
CREATE OR REPLACE FUNCTION guard_comment() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  s review;
  p proposal;
  who person;
BEGIN
  SELECT * INTO s FROM review WHERE id = NEW.review_id;
  SELECT * INTO p FROM proposal WHERE id = s.proposal_id FOR UPDATE;
  IF p.state <> 'open' THEN
    RAISE EXCEPTION 'Proposal % is %, so its discussion is closed', p.id, p.state
      USING ERRCODE = 'GY005', HINT = 'Open another proposal.';
  END IF;
  IF TG_OP = 'INSERT' THEN
    NEW.at := now();
    IF NEW.resolved_by IS NOT NULL THEN
      RAISE EXCEPTION 'A new comment cannot be resolved' USING ERRCODE = 'GY018';
    END IF;
    IF NEW.thread_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM comment t JOIN review o ON o.id = t.review_id
      WHERE t.id = NEW.thread_id AND t.thread_id IS NULL AND o.proposal_id = p.id) THEN
      RAISE EXCEPTION 'Comment % does not start a thread of proposal %', NEW.thread_id, p.id
        USING ERRCODE = 'GY018';
    END IF;
    SELECT * INTO who FROM person WHERE id = NEW.person_id;
  ELSIF NEW.resolved_by IS NULL THEN
    IF OLD.resolved_by IS NULL OR is_owner() THEN
      RETURN NEW;
    END IF;
    SELECT * INTO who FROM person WHERE id = acting_person();
    IF NOT FOUND OR NOT acting_as_operator() THEN
      RAISE EXCEPTION 'Cannot reopen thread %: the transaction does not act for an operator', OLD.id
        USING ERRCODE = 'GY035', HINT = 'Sign in, or use a token with the operator scope.';
    END IF;
  ELSE
    NEW.resolved_at := now();
    SELECT * INTO who FROM person WHERE id = NEW.resolved_by;
    IF who.id <> OLD.person_id AND (NOT may_review(who, places_of(s.id)) OR is_author(p.id, who.id)) THEN
      RAISE EXCEPTION 'Account % neither started thread % nor may approve the change', who.name,
        OLD.id
        USING ERRCODE = 'GY018',
          HINT =
            'Ask the person who started it, or a reviewer who is not an author, to resolve it.';
    END IF;
  END IF;
  IF who.disabled OR NOT has_permission_in(who, ARRAY['operator', 'reviewer'], ARRAY[p.deployment_id]) THEN
    RAISE EXCEPTION 'Account % may not take part in this discussion', who.name
      USING ERRCODE = 'GY018',
        HINT = 'This requires the operator or reviewer permission in the deployment.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_comment BEFORE INSERT OR UPDATE ON comment FOR EACH ROW EXECUTE FUNCTION guard_comment();
