-- Proposals and edits ---------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION guard_proposal() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'Proposal % is % and can no longer change', OLD.id, OLD.state
      USING ERRCODE = 'GY016', HINT = 'Open another proposal.';
  END IF;
  IF NEW.version NOT IN (OLD.version, OLD.version::bigint + 1) THEN
    RAISE EXCEPTION 'The version of a proposal can only rise by one' USING ERRCODE = 'GY016';
  END IF;
  IF NEW.state = 'committed' AND NOT EXISTS (
    SELECT FROM blueprint t JOIN review s ON s.id = t.review_id
    WHERE t.xid = pg_current_xact_id() AND s.proposal_id = NEW.id) THEN
    RAISE EXCEPTION 'Proposal % can only be committed together with its blueprint', NEW.id
      USING ERRCODE = 'GY002';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_proposal BEFORE UPDATE ON proposal FOR EACH ROW EXECUTE FUNCTION guard_proposal();

CREATE OR REPLACE FUNCTION guard_edit() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE p proposal;
BEGIN
  SELECT * INTO p FROM proposal WHERE id = NEW.proposal_id FOR UPDATE;
  IF p.state <> 'open' THEN
    RAISE EXCEPTION 'Proposal % is % and accepts no edits', p.id, p.state
      USING ERRCODE = 'GY005', HINT = 'Open another proposal.';
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.dropped AND NOT (NEW.dropped AND NEW.undone) THEN
    RAISE EXCEPTION 'Edit % of proposal % cannot be redone, because another edit followed it',
      NEW.seq, p.id USING ERRCODE = 'GY016';
  END IF;
  IF TG_OP = 'UPDATE' AND NOT OLD.touched_by <@ NEW.touched_by THEN
    RAISE EXCEPTION 'Authors of edit % of proposal % cannot be removed', NEW.seq, p.id
      USING ERRCODE = 'GY001';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_edit BEFORE INSERT OR UPDATE ON edit FOR EACH ROW EXECUTE FUNCTION guard_edit();
