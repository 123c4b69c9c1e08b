-- Verdicts --------------------------------------------------------------------------------------

-- Takes the proposal's row lock, which a commit holds too: no verdict is added between counting and
-- committing.
CREATE OR REPLACE FUNCTION guard_verdict() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  h head;
  s review;
  p proposal;
  who person;
BEGIN
  SELECT * INTO s FROM review WHERE id = NEW.review_id;
  SELECT * INTO p FROM proposal WHERE id = s.proposal_id FOR UPDATE;
  SELECT * INTO h FROM head;
  IF NEW.person_id IS NULL THEN
    RAISE EXCEPTION 'A policy cannot give a verdict' USING ERRCODE = 'GY012',
      HINT = 'Ask a person to review the change.';
  END IF;
  -- Waits for transactions that disable this person or change their access.
  SELECT * INTO who FROM person WHERE id = NEW.person_id FOR SHARE;
  NEW.at := clock_timestamp();
  IF s.xid = pg_current_xact_id() THEN
    RAISE EXCEPTION 'Review % was submitted in this transaction, so it cannot have a verdict yet',
      s.id
      USING ERRCODE = 'GY013', HINT = 'Give the verdict in a later transaction.';
  END IF;
  IF who.id = s.created_by
     OR EXISTS (SELECT FROM review_author a WHERE a.review_id = s.id AND a.person_id = who.id)
     OR EXISTS (SELECT FROM edit e WHERE e.proposal_id = p.id
                  AND (e.actor = who.id AND NOT e.undone OR who.id = ANY (e.touched_by))) THEN
    RAISE EXCEPTION 'Account % is an author of review % and cannot give a verdict on it', who.name,
      s.id
      USING ERRCODE = 'GY011', HINT = 'Ask another reviewer.';
  END IF;
  IF NOT may_review(who, places_of(s.id)) THEN
    RAISE EXCEPTION 'Account % may not review this change', coalesce(who.name, NEW.person_id::text)
      USING ERRCODE = 'GY012',
        HINT =
          'A reviewer must be an enabled person with the reviewer permission in all deployments '
          'that the change touches.';
  END IF;
  IF p.state <> 'open' OR p.version <> s.version THEN
    RAISE EXCEPTION 'Proposal % is % at version %, but review % is of version %', p.id, p.state,
      p.version, s.id, s.version
      USING ERRCODE = 'GY005', HINT = 'Give your verdict on the newest review of the proposal.';
  END IF;
  IF s.epoch <> h.epoch THEN
    RAISE EXCEPTION 'Review % is from epoch %, but the current epoch is %', s.id, s.epoch, h.epoch
      USING ERRCODE = 'GY008',
        HINT = 'A backup was restored since then. Submit the proposal again.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_verdict BEFORE INSERT ON verdict FOR EACH ROW EXECUTE FUNCTION guard_verdict();

-- Whether a person edited or submitted any version of a proposal.
CREATE OR REPLACE FUNCTION is_author(proposal bigint, person uuid) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM edit e WHERE e.proposal_id = proposal
                   AND (e.actor = person AND NOT e.undone OR person = ANY (e.touched_by)))
      OR EXISTS (SELECT FROM review s JOIN review_author a ON a.review_id = s.id
                 WHERE s.proposal_id = proposal AND a.person_id = person)
$$;
