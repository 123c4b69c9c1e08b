-- Intent ------------------------------------------------------------------------------------------
-- Statement triggers run once per statement, not per row. They fire on the columns that the
-- statement names.

CREATE OR REPLACE FUNCTION guard_intent() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT committing() THEN
    RAISE EXCEPTION 'Table % contains intent, which only a commit can change', TG_TABLE_NAME
      USING ERRCODE = 'GY002', HINT = 'Open a proposal, have it reviewed, and commit it.';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE
  OR UPDATE OF id, parent, name, system, phantom, doc, head_no, removed_in ON deployment
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE INSERT ON blueprint_deployment FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE TRUNCATE
  OR UPDATE OF id, fqdn, deployment_id, phantom, doc ON node
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
-- Removed ids never recur. Otherwise approvals and runs of two different things would mix.
CREATE OR REPLACE FUNCTION guard_removed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'Cannot change % %: it was removed by blueprint %', TG_TABLE_NAME, OLD.id,
    OLD.removed_in
    USING ERRCODE = 'GY016', HINT = 'Create it again with a new id.';
END $$;
CREATE TRIGGER guard_removed BEFORE UPDATE OF id, parent, name, system, phantom, doc, removed_in ON deployment FOR EACH ROW
  WHEN (OLD.removed_in IS NOT NULL) EXECUTE FUNCTION guard_removed();
CREATE TRIGGER guard_removed BEFORE UPDATE OF id, fqdn, deployment_id, phantom, doc, removed_in, transport, connection ON node FOR EACH ROW
  WHEN (OLD.removed_in IS NOT NULL) EXECUTE FUNCTION guard_removed();
-- Whether a step exists is intent, although its state is progress.
CREATE OR REPLACE FUNCTION guard_step_gone() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT committing() THEN
    RAISE EXCEPTION 'Only a commit can add or remove step %', OLD.id
      USING ERRCODE = 'GY002', HINT = 'Open a proposal, have it reviewed, and commit it.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_step_gone BEFORE UPDATE OF state ON step FOR EACH ROW
  WHEN ((OLD.state = 'gone') <> (NEW.state = 'gone')) EXECUTE FUNCTION guard_step_gone();
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE OR UPDATE ON edge
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE OR UPDATE ON concurrency_group
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();
CREATE TRIGGER guard_intent BEFORE INSERT OR DELETE OR TRUNCATE OR UPDATE ON disruption_budget
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();

CREATE TRIGGER guard_intent BEFORE TRUNCATE OR DELETE OR UPDATE OF name, active ON jig
  FOR EACH STATEMENT EXECUTE FUNCTION guard_intent();

-- Even in a commit, a document changes only to the version that the review lists.
CREATE OR REPLACE FUNCTION guard_document() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM blueprint t JOIN head h ON h.epoch = t.epoch
    LEFT JOIN review_document d ON d.review_id = t.review_id AND d.kind = TG_TABLE_NAME AND d.id = NEW.id
    WHERE t.xid = pg_current_xact_id() AND (t.kind = 'genesis' OR (d.id IS NOT NULL AND d.new_hash IS NOT DISTINCT FROM NEW.doc))) THEN
    RAISE EXCEPTION 'The document of % % is not listed in the review', TG_TABLE_NAME, NEW.id
      USING ERRCODE = 'GY010';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_document AFTER INSERT ON deployment FOR EACH ROW EXECUTE FUNCTION guard_document();
CREATE TRIGGER guard_document_change AFTER UPDATE OF doc ON deployment FOR EACH ROW
  WHEN (NEW.doc IS DISTINCT FROM OLD.doc AND NEW.removed_in IS NULL) EXECUTE FUNCTION guard_document();
CREATE TRIGGER guard_document AFTER INSERT ON node FOR EACH ROW
  WHEN (NEW.doc IS NOT NULL) EXECUTE FUNCTION guard_document();
CREATE TRIGGER guard_document_change AFTER UPDATE OF doc ON node FOR EACH ROW
  WHEN (NEW.doc IS DISTINCT FROM OLD.doc AND NEW.removed_in IS NULL) EXECUTE FUNCTION guard_document();
