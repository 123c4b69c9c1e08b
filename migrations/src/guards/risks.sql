-- Risks -----------------------------------------------------------------------------------------
-- The risks of a review determine the approvals that it needs. A commit may not have a risk that its
-- review does not list.

-- The risks determine the number of approvals, so a destructive step must be among them.
CREATE OR REPLACE FUNCTION guard_risk() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM blueprint t JOIN head h ON h.epoch = t.epoch LEFT JOIN review s ON s.id = t.review_id
                 WHERE t.xid = pg_current_xact_id() AND (t.kind = 'genesis' OR 'destructive' = ANY (s.risk))) THEN
    RAISE EXCEPTION 'Step % is destructive, but the review does not list that risk', NEW.id
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_risk AFTER INSERT ON step FOR EACH ROW WHEN (NEW.destructive) EXECUTE FUNCTION guard_risk();
-- A removed step does not run.
CREATE TRIGGER guard_risk_again AFTER UPDATE OF generation, destructive ON step FOR EACH ROW
  WHEN (NEW.destructive AND NEW.state <> 'gone'
        AND (NEW.generation, NEW.destructive) IS DISTINCT FROM (OLD.generation, OLD.destructive))
  EXECUTE FUNCTION guard_risk();

-- Whether the commit of this transaction names a risk. Genesis has no review. The function runs for
-- every re-run step, and its own search path would cost 0.1 ms per call. So it qualifies every name
-- instead.
CREATE OR REPLACE FUNCTION names_risk(risk_name text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM public.blueprint t JOIN public.head h ON h.epoch OPERATOR(pg_catalog.=) t.epoch
    LEFT JOIN public.review s ON s.id OPERATOR(pg_catalog.=) t.review_id
    WHERE t.xid OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id()
      AND (t.kind OPERATOR(pg_catalog.=) 'genesis' OR risk_name OPERATOR(pg_catalog.=) ANY (s.risk)));
END $$;

-- risks_of_documents checks the risks in the documents. The following triggers check the rows, so
-- that no row changes in a way that the documents do not show.

-- A re-run raises the generation. A restored step runs for the first time, and a removed step does
-- not run.
CREATE OR REPLACE FUNCTION guard_rerun() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT public.names_risk('rerun') THEN
    RAISE EXCEPTION 'Step % runs again, but the review does not list that risk', NEW.id
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_rerun AFTER UPDATE OF generation ON step FOR EACH ROW
  WHEN (NEW.generation IS DISTINCT FROM OLD.generation AND OLD.state <> 'gone' AND NEW.state <> 'gone')
  EXECUTE FUNCTION guard_rerun();

CREATE OR REPLACE FUNCTION guard_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT public.names_risk('removal') THEN
    RAISE EXCEPTION 'Cannot remove % %: the review does not list that risk', TG_TABLE_NAME, OLD.id
      USING ERRCODE = 'GY009';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_removal AFTER UPDATE OF disposition ON noderole FOR EACH ROW
  WHEN (OLD.disposition = 'in_service' AND NEW.disposition <> 'in_service') EXECUTE FUNCTION guard_removal();
-- A removal step goes when its noderole is bound again, which removes nothing.
CREATE TRIGGER guard_removal AFTER UPDATE OF state ON step FOR EACH ROW
  WHEN (OLD.state <> 'gone' AND NEW.state = 'gone' AND NEW.action = 'run') EXECUTE FUNCTION guard_removal();
CREATE TRIGGER guard_removal AFTER UPDATE OF removed_in ON deployment FOR EACH ROW
  WHEN (OLD.removed_in IS NULL AND NEW.removed_in IS NOT NULL) EXECUTE FUNCTION guard_removal();
-- A bare record is not intent, so its removal needs no commit.
CREATE TRIGGER guard_removal AFTER UPDATE OF removed_in ON node FOR EACH ROW
  WHEN (OLD.doc IS NOT NULL AND OLD.removed_in IS NULL AND NEW.removed_in IS NOT NULL) EXECUTE FUNCTION guard_removal();
-- Gantry never deletes these rows.
CREATE TRIGGER guard_removal_deleted AFTER DELETE ON noderole FOR EACH ROW EXECUTE FUNCTION guard_removal();
CREATE TRIGGER guard_removal_deleted AFTER DELETE ON step FOR EACH ROW EXECUTE FUNCTION guard_removal();
CREATE TRIGGER guard_removal_deleted AFTER DELETE ON deployment FOR EACH ROW EXECUTE FUNCTION guard_removal();
CREATE TRIGGER guard_removal_deleted AFTER DELETE ON node FOR EACH ROW
  WHEN (OLD.doc IS NOT NULL) EXECUTE FUNCTION guard_removal();

-- Switching a jig off is a risk too. Only the document of *system* contains it.
CREATE OR REPLACE FUNCTION guard_halt() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF jigs_off(NEW.doc) <@ jigs_off(OLD.doc) OR EXISTS (
    SELECT FROM blueprint t JOIN head h ON h.epoch = t.epoch JOIN review s ON s.id = t.review_id
    WHERE t.xid = pg_current_xact_id() AND 'halt' = ANY (s.risk)) THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'A jig is turned off, but the review does not list that risk'
    USING ERRCODE = 'GY009', HINT = 'Submit the proposal again.';
END $$;
CREATE OR REPLACE FUNCTION jigs_off(doc bytea) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT coalesce(convert_from(o.body, 'UTF8')::jsonb -> 'inactive_jigs', '[]'::jsonb) FROM object o WHERE o.hash = doc
$$;
CREATE TRIGGER guard_halt AFTER UPDATE OF doc ON deployment FOR EACH ROW
  WHEN (NEW.system AND NEW.doc IS DISTINCT FROM OLD.doc) EXECUTE FUNCTION guard_halt();
