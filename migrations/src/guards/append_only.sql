-- Append-only -------------------------------------------------------------------------------------
-- Server and workers have no privilege to change these rows. The triggers protect against the
-- owner's mistakes: a manual repair has to disable the trigger first.

CREATE OR REPLACE FUNCTION guard_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'Rows of table % are append-only and can never be changed or deleted',
    TG_TABLE_NAME
    USING ERRCODE = 'GY001', HINT = 'Insert a row that supersedes it.';
END $$;

DO $$
DECLARE tbl text;
BEGIN
  FOREACH tbl IN ARRAY ARRAY['object', 'policy', 'barclamp', 'blueprint', 'review', 'review_base',
                             'review_author', 'review_document', 'blueprint_deployment', 'not_restored', 'replan', 'verdict',
                             'audit', 'seal'] LOOP
    EXECUTE format('CREATE TRIGGER guard_append_only BEFORE UPDATE OR DELETE ON %I
                    FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only()', tbl);
    EXECUTE format('CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON %I
                    FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only()', tbl);
  END LOOP;
END $$;
-- Old events are deleted (forget_events), but never changed.
CREATE TRIGGER guard_append_only BEFORE UPDATE ON event FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only();
-- A thread can be resolved and reopened. Its text never changes.
CREATE TRIGGER guard_append_only BEFORE DELETE
  OR UPDATE OF id, review_id, thread_id, anchor, person_id, body, at ON comment
  FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON comment FOR EACH STATEMENT EXECUTE FUNCTION guard_append_only();
